"""`gpusched launch --listen` and `gpusched join`: two hosts on this one, with real learners, actors and keys."""

import json
import shlex
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.two_hosts import SETTINGS, Host, end, listening, next_line, two_hosts, until_said
from tests.patience import PATIENCE_S, until
from tests.ports import free_port


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    with two_hosts(tmp_path) as both:
        yield both


def secrets_of(*homes: Path) -> list[str]:
    keys = [json.loads(path.read_text()) for home in homes for path in home.glob("state/**/*.key")]
    return [key["secret"] for key in keys]


def connected(host: Host) -> list[int]:
    """How many actors of each host that joined are there, as the status of a job of `host` tells."""
    return [one["connected"] for one in host.status()["joined"]]


def words_in(process: int) -> str:
    return "".join(
        Path(f"/proc/{process}/{name}").read_bytes().replace(b"\0", b" ").decode() for name in ("cmdline", "environ")
    )


def test_actors_of_another_host_feed_the_learner_and_end_with_it(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    joined = two.start(*words[:-1], "2")
    until(lambda: len(one.fed()) == 3, "all three actors feed the learner")
    ours = [name for name in one.fed() if "@" in name]
    host = ours[0].partition("@")[2]

    until(lambda: connected(one) == [2], "the status tells of both")
    told, elsewhere = one.status(), two.status()
    fed = one.fed()
    until_said(launched, rf"{host} \(127\.0\.0\.1\): 2 of 2 actors")
    by_launch, by_join = end(one, launched, joined)

    assert words[0] == "join"
    assert words[-2:] == ["--procs", "1"]
    assert sorted(ours) == [f"actor.0@{host}", f"actor.1@{host}"]
    assert len(set(fed.values())) == 3, "no two have one rank"
    assert told["joined"][0]["host"] == host
    assert told["joined"][0]["batches"] > 0
    assert told["listen"] == words[1]
    assert elsewhere["joins"] == {"endpoint": words[1], "job": "toy-1", "host": host}
    assert [one["name"] for one in elsewhere["replicas"]] == ["actor.0", "actor.1"]
    assert f"joined toy-1 at {words[1]}: 2 actors as {host}" in by_join
    assert "toy-1 succeeded" in by_join
    assert (launched.returncode, joined.returncode) == (0, 0), by_launch + by_join


def test_a_learner_may_have_no_actors_but_those_that_join(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    launched = one.start("launch", "toy", "--listen", endpoint, "--procs", "0")
    assert next_line(launched).startswith("toy-1: 1 process")
    words = shlex.split(next_line(launched))[1:]
    assert "--procs" not in words
    joined = two.start(*words, "--procs", "2")
    until(lambda: len(one.fed()) == 2, "both feed the learner")
    end(one, launched, joined)
    assert (launched.returncode, joined.returncode) == (0, 0)


def test_no_secret_is_anywhere_but_in_the_key_files(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    joined = two.start(*words)
    until(lambda: len(one.fed()) == 2, "both actors feed the learner")

    secrets = secrets_of(one.home, two.home)
    living = "".join(words_in(pid) for host in hosts for pid in host.command.running())
    listed = one.run("keys", "list").stdout + one.run("keys", "list", "--json").stdout
    output = "".join(end(one, launched, joined))
    files = [path for host in hosts for path in host.home.rglob("*") if path.is_file() and path.suffix != ".key"]
    keys = [path for host in hosts for path in host.home.glob("state/**/*.key")]

    assert len(secrets) == 3, "the learner's, the one for who joins, and the copy of that"
    assert "GPUSCHED_KEYS=" in living
    for secret in secrets:
        assert secret not in living + listed + output
        assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in keys} == {0o700}


def test_ctrl_c_takes_the_actors_away_and_the_job_goes_on(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    joined = two.start(*words)
    until(lambda: len(one.fed()) == 2, "both actors feed the learner")

    until(lambda: connected(one) == [1], "the status tells of it")
    joined.send_signal(signal.SIGINT)
    joined.communicate(timeout=PATIENCE_S)
    until(lambda: connected(one) == [0], "it is gone")
    again = two.start(*words)
    until(lambda: len(one.fed()) == 3, "who joins again is another host to the learner")
    end(one, launched, again)

    assert joined.returncode == 130
    assert (launched.returncode, again.returncode) == (0, 0)


def test_an_actor_that_still_starts_when_the_learner_ends_is_not_left_looking_for_it(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    two.command.env["TOY_STARTS_SLOWLY"] = "actor.1"
    launched, words = listening(one)
    joined = two.start(*words[:-1], "2")
    until(lambda: len(one.fed()) == 2, "one of the two feeds the learner")

    output = end(one, launched, joined)[1]

    assert joined.returncode == 0, output
    assert [replica["exit"]["kind"] for replica in two.status()["replicas"]] == ["completed", "stopped"]


def test_both_through_the_queue(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    launched = one.run("launch", "-d", "toy", "--listen", endpoint, "--procs", "1")
    until(one.fed, "the learner has its own actor")
    key = one.job() / "keys" / "join.key"
    held = two.run("join", endpoint, "--key", str(key), "--procs", "2", "-d", "--hold", "--json")
    waiting = two.run("ps").stdout
    two.run("release", "toy-1")
    until(lambda: len(one.fed()) == 3 and connected(one) == [2], "all three actors feed the learner")
    working = one.run("ps").stdout
    (one.job() / "end").touch()

    assert (launched.returncode, launched.stdout) == (0, "toy-1\n"), launched.stderr
    assert f"gpusched join {endpoint} --key {key} --procs 1" in launched.stderr
    assert json.loads(held.stdout)["joins"]["job"] == "toy-1"
    assert f"toy, joins toy-1 at {endpoint} as " in waiting
    assert "toy, and 2 actors of " in working
    assert two.run("wait", "toy-1").stdout.startswith("toy-1 succeeded")
    assert one.run("wait", "toy-1").returncode == 0
    assert json.loads(one.run("ps", "--json", "toy-1").stdout)["jobs"][0]["joined"][0]["actors"] == 2


def test_without_keys_it_stays_on_loopback(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one, "--insecure")
    joined = two.start(*words)
    until(lambda: len(one.fed()) == 2, "both actors feed the learner")
    keys = one.run("keys", "new", "toy-1", "lab2")
    end(one, launched, joined)

    assert "--insecure" in words
    assert not (one.job() / "keys").exists()
    assert (launched.returncode, joined.returncode) == (0, 0)
    assert keys.returncode == 4
    assert "without keys" in keys.stderr


def test_a_key_that_is_revoked_lets_nobody_in(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    made = one.run("keys", "new", "toy-1", "lab2")
    with_it = ["join", words[1], "--key", made.stdout.strip(), "--procs", "1"]
    joined = two.start(*with_it)
    until(lambda: len(one.fed()) == 2, "the actor with the new key feeds the learner")
    kept = two.home / "copy.key"
    kept.write_text(Path(made.stdout.strip()).read_text())
    kept.chmod(0o600)

    revoked = one.run("keys", "revoke", "toy-1", "lab2")
    output, _ = joined.communicate(timeout=PATIENCE_S)
    again = two.run("join", words[1], "--key", str(kept), "--json")
    listed = {key["name"]: key for key in json.loads(one.run("keys", "list", "toy-1", "--json").stdout)["keys"]}
    end(one, launched)

    assert revoked.returncode == 0
    assert joined.returncode == 1, output
    assert "the learner does not let this host in: its key was revoked" in output
    assert [one["restarts"] for one in two.command.job()["replicas"]] == [0], "another try would end alike"
    assert again.returncode == 2
    assert "does not let in the key 'lab2'" in json.loads(again.stdout)["error"]["message"]
    assert listed["lab2"]["revoked"] is not None
    assert (listed["lab2"]["file"], listed["join"]["revoked"]) == (None, None)
    assert launched.returncode == 0


def test_where_the_hosts_differ_it_is_told_and_nothing_starts(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    folder = two.home / "workloads" / "toy"
    for number in range(4):
        (folder / f"more_{number}.py").touch()
    (folder / "options.py").write_text(SETTINGS + "# another\n")
    (folder / "workload.toml").write_text((folder / "workload.toml").read_text() + "\n")
    refused = two.run(*words)
    joined = two.start(*words, "--different")
    until(lambda: len(one.fed()) == 2, "with --different it goes on")
    output = end(one, launched, joined)[1]

    assert refused.returncode == 5
    assert "more_0.py is here only; more_1.py is here only;" in refused.stderr
    assert "options.py differs; and 1 more" in refused.stderr
    assert "--different" in refused.stderr
    assert "warning: not as the learner has it: options.py differs" in output
    assert joined.returncode == 0


def test_settings_that_this_host_does_not_know_are_told(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    (two.home / "workloads" / "toy" / "options.py").write_text(SETTINGS.replace("pace: int", "speed: int"))
    renamed = two.run(*words, "--different")
    (two.home / "workloads" / "toy" / "options.py").write_text(SETTINGS.replace("pace: int = 3", "pace: str = 'x'"))
    retyped = two.run(*words, "--different")
    end(one, launched)

    assert (renamed.returncode, retyped.returncode) == (2, 2)
    assert "have 'pace', which toy on this host does not know" in renamed.stderr
    assert "not understood by toy here: Expected `str`, got `int`" in retyped.stderr
    assert not (two.command.state / "jobs").exists()


def test_a_workload_that_is_not_here_is_told_and_may_be_named(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    (two.home / "workloads").rename(two.home / "kept")
    missing = two.run(*words)
    named = two.run(*words, "--workload", "kept/toy", "--different", "--json")
    end(one, launched)

    assert missing.returncode == 2
    assert "the workload toy is not on this host" in missing.stderr
    assert "--workload PATH" in missing.stderr
    assert "settings" in json.loads(named.stdout)["error"]["message"], "found, but its settings class is not importable"


def test_nobody_there_is_told(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    key = two.home / "join.key"
    key.write_bytes(Path(words[words.index("--key") + 1]).read_bytes())
    key.chmod(0o600)
    end(one, launched)

    told = two.run("join", words[1], "--key", str(key), "--json")

    assert told.returncode == 4
    assert json.loads(told.stdout)["error"]["code"] == "not-found"


@pytest.mark.parametrize(
    ("listen", "more", "complaint"),
    [
        ("tcp://127.0.0.1:0", (), "port 0"),
        ("tcp://0.0.0.0:99999", (), "there is no port 99999"),
        ("tcp://0.0.0.0:5555", ("--insecure",), "loopback only"),
        ("tcp://192.0.2.7:5555", (), "Cannot assign requested address"),
        ("tcp://lab2:5555", (), "'lab2' is a name"),
        ("ipc:///tmp/x", (), "is no address"),
        ("5555", (), "is no address"),
    ],
)
def test_where_nobody_can_listen_is_told_before_anything_starts(
    listen: str, more: tuple[str, ...], complaint: str, hosts: tuple[Host, Host]
) -> None:
    one, _ = hosts

    told = one.run("launch", "toy", "--listen", listen, *more)

    assert told.returncode == 2
    assert complaint in told.stderr
    assert not (one.command.state / "jobs").exists()


def test_a_port_in_use_is_told_before_anything_starts(hosts: tuple[Host, Host]) -> None:
    one, _ = hosts
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = one.run("launch", "toy", "--listen", f"tcp://127.0.0.1:{server.getsockname()[1]}")

    assert told.returncode == 2
    assert "Address already in use" in told.stderr
    assert not (one.command.state / "jobs").exists()


def test_a_workload_without_a_learner_cannot_listen(command: Command) -> None:
    workload = Path(command.toy("for_ever.py", memory=False))
    workload.write_text(workload.read_text().replace("roles.learner", "roles.other").replace('leader = "learner"', ""))

    told = command.run("launch", str(workload), "--listen", "tcp://127.0.0.1:5555")

    assert told.returncode == 2
    assert "no role `learner` and no leader" in told.stderr


@pytest.mark.parametrize(
    "words", [("averaging", "--procs", "0"), ("averaging",), ("cartpole", "--scheme", "average")], ids=" ".join
)
def test_a_workload_that_takes_no_actors_of_other_hosts_is_refused_before_anything_starts(
    words: tuple[str, ...], command: Command
) -> None:
    for detach in ((), ("-d",)):
        told = command.run("launch", *words, "--listen", "tcp://127.0.0.1:5555", *detach)

        assert told.returncode == 2, told.stderr
        assert f"{words[0]}, as it was configured, takes no actors of other hosts" in told.stderr
    assert not (command.state / "jobs").exists()


def test_a_learner_whose_workload_here_takes_no_actors_of_other_hosts_is_not_joined(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    file = two.home / "workloads" / "toy" / "workload.toml"
    file.write_text(file.read_text().replace("[job]", "[job]\nlisten = false"))
    told = two.run(*words, "--different")
    end(one, launched)

    assert told.returncode == 2, told.stderr
    assert "takes no actors of other hosts" in told.stderr
    assert not (two.command.state / "jobs").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("tcp://127.0.0.1:5555",), 2, "with which key?"),
        (("tcp://127.0.0.1:5555", "--key", "k", "--insecure"), 2, "exclude each other"),
        (("tcp://192.0.2.7:5555", "--insecure"), 2, "loopback only"),
        (("127.0.0.1:5555", "--key", "k"), 2, "is no address"),
        (("tcp://127.0.0.1:5555", "--key", "no.key"), 4, "there is no key file no.key"),
        (("tcp://127.0.0.1:5555", "--key", "open.key"), 2, "chmod 600 open.key"),
        (("tcp://127.0.0.1:5555", "--key", "odd.key"), 2, "no key file of gpusched"),
        (("tcp://127.0.0.1:5555", "--key", "odd.key", "--patience", "7x"), 2, "--patience"),
        (("tcp://127.0.0.1:5555", "--key", "odd.key", "--hold"), 2, "add -d"),
    ],
)
def test_a_join_that_cannot_be_is_told_at_once(
    words: tuple[str, ...], code: int, complaint: str, command: Command, tmp_path: Path
) -> None:
    for name, mode in (("open.key", 0o644), ("odd.key", 0o600)):
        (tmp_path / name).write_text("{}")
        (tmp_path / name).chmod(mode)

    told = command.run("join", *words, cwd=tmp_path)

    assert told.returncode == code, told.stderr
    assert complaint in told.stderr
    assert "Traceback" not in told.stderr


def test_five_hundred_silent_connections_keep_no_host_from_joining(hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    launched, words = listening(one)
    port = int(words[1].rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(500)]
    try:
        joined = two.start(*words[:-1], "2")
        until(lambda: len(one.fed()) == 3, "all three actors feed the learner")
        end(one, launched, joined)
    finally:
        for each in silent:
            each.close()
    assert (launched.returncode, joined.returncode) == (0, 0)
