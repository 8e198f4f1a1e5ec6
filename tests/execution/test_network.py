"""What a job has to do with other hosts: addresses, keys that last, what its replicas and what people are told."""

import json
import socket
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import NotFound, UsageError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.hosts import addresses, join_key, learner_role, remove_former_keys, with_joined, with_network
from gpusched.execution.network import check_network, keep_key, prepare_network
from gpusched.joining.invitation import read_invitation
from gpusched.joining.keys import listed, read_join_key, read_server_key, revoke
from gpusched.joining.tcp import Tcp, reachable
from gpusched.model.job import NODE_PATIENCE_S, Joining, Listening, Network, NodeActors
from gpusched.model.plan import Replica
from gpusched.model.status import JobState, JobStatus, JoinedJob
from gpusched.model.workload import Role, Workload

LISTENS = Listening(endpoint="tcp://0.0.0.0:5555", versions={"gpusched": "9"})
JOINS = Joining(endpoint="tcp://lab1:5555", job="snake-4", host="lab2", first_rank=2000, key="/x/join.key")
MEMBER = NodeActors(endpoint="tcp://n1:5555", job="snake-4", incarnation=2, key="/x/join.key")
LEARNER = Role(name="learner", command=("true",))
ACTOR = Role(name="actor", command=("true",), count=4)


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    (tmp_path / "snake-4").mkdir()
    return JobDirectory(tmp_path / "snake-4")


def status(directory: JobDirectory) -> JobStatus:
    return JobStatus(
        id="snake-4", workload="snake", state=JobState.RUNNING, counts=(), replicas=(), run_dir=str(directory.path)
    )


def told(network: Network | None, role: str) -> dict[str, object]:
    replica = Replica(name=f"{role}.0", role=role, rank=0)
    found = addresses(network, Path("/jobs/snake-4"), Path("/run/s.sock"), replica, "learner")
    return {name: value for name, value in found._asdict().items() if value != found._field_defaults.get(name)}


def test_only_the_learner_is_told_to_listen_and_with_which_key() -> None:
    assert told(LISTENS, "learner") == {
        "endpoint": "ipc:///run/s.sock",
        "listen": "tcp://0.0.0.0:5555",
        "keys": "/jobs/snake-4/keys/server.key",
    }
    assert told(LISTENS, "actor") == {"endpoint": "ipc:///run/s.sock"}
    assert told(None, "actor") == {"endpoint": "ipc:///run/s.sock"}
    assert "keys" not in told(msgspec.structs.replace(LISTENS, insecure=True), "learner")


def test_an_actor_that_joined_is_told_where_the_learner_is_and_who_it_is_there() -> None:
    assert told(JOINS, "actor") == {
        "endpoint": "tcp://lab1:5555",
        "keys": "/jobs/snake-4/keys/join.key",
        "joined": "lab2",
        "first_rank": 2000,
        "patience_s": 900,
    }
    assert "keys" not in told(msgspec.structs.replace(JOINS, key=None), "actor")


def test_an_actor_of_another_node_is_told_its_incarnation_and_no_name_for_its_host() -> None:
    assert told(MEMBER, "actor") == {
        "endpoint": "tcp://n1:5555",
        "keys": "/jobs/snake-4/keys/join.key",
        "patience_s": NODE_PATIENCE_S,
        "incarnation": 2,
    }
    assert "keys" not in told(msgspec.structs.replace(MEMBER, key=None), "actor")
    first = msgspec.structs.replace(LISTENS, incarnation=1)
    assert [told(first, role)["incarnation"] for role in ("learner", "actor")] == [1, 1]


def test_a_job_that_is_started_again_keeps_its_keys(directory: JobDirectory) -> None:
    prepare_network(directory, "snake", b'{"seed":7}', LISTENS)
    server, join = read_server_key(directory.path / "keys" / "server.key"), read_join_key(join_key(directory.path))
    prepare_network(directory, "snake", b'{"seed":7}', LISTENS)

    assert server == read_server_key(directory.path / "keys" / "server.key")
    assert join == read_join_key(join_key(directory.path))
    assert join.server == server.public
    assert [key.name for key in listed(directory.path / "keys")] == ["join"]
    invitation = read_invitation(directory.path)
    assert invitation is not None
    assert (invitation.job, invitation.workload, invitation.options) == ("snake-4", "snake", '{"seed":7}')
    assert invitation.versions == {"gpusched": "9"}


def test_a_key_that_was_revoked_does_not_come_back_with_the_next_start(directory: JobDirectory) -> None:
    prepare_network(directory, "snake", b"{}", LISTENS)
    revoke(directory.path / "keys", "join")
    prepare_network(directory, "snake", b"{}", LISTENS)

    assert [key.revoked is None for key in listed(directory.path / "keys")] == [False]
    assert not join_key(directory.path).exists()


def test_without_keys_none_are_made(directory: JobDirectory) -> None:
    prepare_network(directory, "snake", b"{}", msgspec.structs.replace(LISTENS, insecure=True))

    assert not (directory.path / "keys").exists()
    assert read_invitation(directory.path) is not None


@pytest.mark.parametrize("network", [JOINS, MEMBER])
def test_whose_learner_is_elsewhere_has_a_copy_of_its_key_that_only_it_can_read(
    network: Joining | NodeActors, directory: JobDirectory, tmp_path: Path
) -> None:
    prepare_network(directory, "snake", b"{}", LISTENS)
    key = read_join_key(join_key(directory.path))
    kept = keep_key(tmp_path / "state", key)
    other = JobDirectory(tmp_path / "other-1")
    other.path.mkdir()
    prepare_network(other, "snake", b"{}", msgspec.structs.replace(network, key=str(kept)))

    assert read_join_key(join_key(other.path)) == read_join_key(kept) == key
    assert key.secret not in str(kept)
    for file in (kept, join_key(other.path)):
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    kept.unlink()
    with pytest.raises(NotFound):
        prepare_network(other, "snake", b"{}", msgspec.structs.replace(network, key=str(kept)))


def test_a_status_tells_of_both_sides(directory: JobDirectory) -> None:
    rows = [{"host": "lab2", "actors": 4, "connected": 3, "batches": 7, "bytes": 99, "address": "10.0.0.2", "new": 1}]
    (directory.path / "joined.json").write_text(json.dumps(rows))

    listens = with_joined(with_network(status(directory), LISTENS))
    joins = with_joined(with_network(status(directory), JOINS))
    member = with_joined(with_network(status(directory), MEMBER))

    assert listens.listen == "tcp://0.0.0.0:5555"
    assert [(one.host, one.connected, one.address) for one in listens.joined] == [("lab2", 3, "10.0.0.2")]
    assert (joins.listen, joins.joined) == (None, ())
    assert joins.joins is not None
    assert (joins.joins.job, joins.joins.host) == ("snake-4", "lab2")
    assert member.joins == JoinedJob(endpoint="tcp://n1:5555", job="snake-4")
    assert with_joined(with_network(status(directory), None)) == status(directory)


@pytest.mark.parametrize("content", [b"", b"[", b"{}", b'[{"actors": 1}]', b'[{"host": 5}]', b"\xff", b"[" * 10_000])
def test_what_the_learner_tells_in_no_form_is_nothing(content: bytes, directory: JobDirectory) -> None:
    (directory.path / "joined.json").write_bytes(content)

    assert with_joined(with_network(status(directory), LISTENS)).joined == ()


def test_the_learner_is_the_role_of_that_name_or_the_leader() -> None:
    other = Role(name="master", command=("true",))
    assert learner_role(Workload(name="x", roles=(ACTOR, LEARNER), leader="actor")) == "learner"
    assert learner_role(Workload(name="x", roles=(other, ACTOR), leader="master")) == "master"
    for roles, leader in (((ACTOR,), None), ((ACTOR,), "actor")):
        with pytest.raises(UsageError):
            learner_role(Workload(name="x", roles=roles, leader=leader))


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "a b"},
        {"host": "x" * 33},
        {"host": ""},
        {"key": "join.key"},
        {"key": "/x\0"},
        {"key": None},
        {"endpoint": "ipc:///x"},
    ],
)
def test_the_daemon_refuses_what_no_command_of_ours_would_ask(wrong: dict[str, object]) -> None:
    workload = Workload(name="snake", roles=(ACTOR,))
    for network in (JOINS, MEMBER):
        check_network(workload, network)
        if wrong.keys() <= set(network.__struct_fields__):
            with pytest.raises(UsageError):
                check_network(workload, msgspec.structs.replace(network, **wrong))


def test_the_daemon_refuses_to_listen_for_nobody_and_in_plain_text() -> None:
    whole = Workload(name="snake", roles=(LEARNER, ACTOR))
    check_network(whole, LISTENS)
    check_network(whole, None)
    for workload, network in (
        (Workload(name="snake", roles=(ACTOR,)), LISTENS),
        (whole, msgspec.structs.replace(LISTENS, insecure=True)),
        (whole, msgspec.structs.replace(LISTENS, path="workload.toml")),
    ):
        with pytest.raises(UsageError):
            check_network(workload, network)


@pytest.mark.parametrize(
    ("text", "host", "endpoint"),
    [
        ("tcp://10.0.0.1:5555", "10.0.0.1", "tcp://10.0.0.1:5555"),
        ("tcp://*:5555", "0.0.0.0", "tcp://0.0.0.0:5555"),  # noqa: S104 (a text)
        ("tcp://localhost:1", "127.0.0.1", "tcp://127.0.0.1:1"),
        ("tcp://[::]:65535", "::", "tcp://[::]:65535"),
        ("tcp://[::1]:5555", "::1", "tcp://[::1]:5555"),
    ],
)
def test_where_a_learner_may_listen(text: str, host: str, endpoint: str) -> None:
    found = Tcp.to_listen(text, "--listen")

    assert (found.host, found.endpoint) == (host, endpoint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tcp://",
        "tcp://:5555",
        "tcp://10.0.0.1",
        "tcp://10.0.0.1:",
        "tcp://10.0.0.1:0",
        "tcp://10.0.0.1:65536",
        "tcp://10.0.0.1:-1",
        "tcp://10.0.0.1:٣",
        "tcp://10.0.0.1:5555/x",
        "tcp://::1:5555",
        "tcp://[::1:5555",
        "tcp://[lab]:5555",
        "tcp://a b:5555",
        "tcp://a\0:5555",
        "udp://10.0.0.1:5555",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError):
        Tcp.parse(text, "--listen")


def test_all_addresses_are_told_as_the_one_that_others_would_reach() -> None:
    found = reachable(Tcp("0.0.0.0", 5555))  # noqa: S104 (nothing is bound)

    assert found.port == 5555
    assert not found.everywhere
    assert reachable(Tcp("10.0.0.1", 5555)) == Tcp("10.0.0.1", 5555)
    assert socket.getaddrinfo(found.host, found.port)


def test_a_file_that_somebody_left_beside_the_keys_of_a_start_harms_nothing(tmp_path: Path) -> None:
    for name in ("keys", "keys.1", "keys.3", "keys.foo", "keys.²"):
        (tmp_path / name).mkdir()
    remove_former_keys(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys", "keys.3", "keys.foo", "keys.²"]
