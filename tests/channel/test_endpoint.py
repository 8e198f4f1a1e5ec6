"""An endpoint is used by one learner, private to its user, and told apart from a mistake."""

import socket
from pathlib import Path

import pytest

from gpusched.channel import Actor, Learner
from gpusched.channel.endpoint import check_endpoint
from gpusched.errors import ChannelError, HostFault, NotLaunched, UsageError


def test_a_second_learner_on_the_same_path_is_refused_and_the_first_goes_on(endpoint: str) -> None:
    with Learner(endpoint) as learner:
        with pytest.raises(ChannelError, match="another learner holds"):
            Learner(endpoint)
        with Actor(endpoint, name="actor.0") as actor:
            learner.publish({})
            assert actor.weights().version == 1


def test_a_learner_takes_the_place_of_one_that_died(directory: Path, endpoint: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(directory / "job.sock"))
    with Learner(endpoint):
        pass
    assert list(directory.iterdir()) == []


def test_a_file_in_the_way_is_not_removed(directory: Path, endpoint: str) -> None:
    (directory / "job.sock").write_text("precious")
    with pytest.raises(UsageError, match="it is no socket"):
        Learner(endpoint)
    assert (directory / "job.sock").read_text() == "precious"
    assert not (directory / "job.sock.lock").exists()


def test_a_directory_open_to_others_is_refused(directory: Path, endpoint: str) -> None:
    directory.chmod(0o755)
    with pytest.raises(UsageError, match=r"open to other users .*directory of mode 700"):
        Learner(endpoint)


def test_a_missing_directory_is_made_private(directory: Path) -> None:
    with Learner(f"ipc://{directory}/new/job.sock"):
        assert (directory / "new").stat().st_mode & 0o777 == 0o700
        assert (directory / "new" / "job.sock").stat().st_mode & 0o777 == 0o600


def test_a_directory_that_cannot_be_made_is_the_hosts_fault(directory: Path) -> None:
    (directory / "file").touch()
    with pytest.raises(HostFault):
        Learner(f"ipc://{directory}/file/job.sock")


def test_a_path_too_long_for_unix_sockets_is_refused(directory: Path) -> None:
    check_endpoint("ipc:///" + "x" * 106)
    with pytest.raises(UsageError, match="108 bytes is over the 107"):
        Learner("ipc:///" + "x" * 107)
    with pytest.raises(UsageError, match="107"):
        Actor(f"ipc://{directory}/" + "x" * 107)


@pytest.mark.parametrize(
    "endpoint", ["", "ipc://relative", "ipc://@abstract", "inproc://x", "/tmp/x", "udp://1.2.3.4:5"]
)
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="no endpoint"):
        Learner(endpoint)


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:5", "tcp://*:5", "tcp://192.0.2.1:5", "tcp://example.org:5"])
def test_without_keys_the_channel_stays_on_one_host(endpoint: str) -> None:
    with pytest.raises(UsageError, match="stays on one host"):
        Learner(endpoint)


def test_a_port_in_use_is_told() -> None:
    with Learner("tcp://127.0.0.1:0") as learner, pytest.raises(ChannelError, match="in use"):
        Learner(learner.endpoint)


@pytest.mark.parametrize("side", [Learner, Actor])
def test_outside_a_launch_the_message_says_what_to_do(side: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSCHED_JOB", raising=False)
    with pytest.raises(NotLaunched, match=r"gpusched launch.*give an endpoint: " + side.__name__):
        side()


@pytest.mark.parametrize("name", [" ", "a" * 65, "a\n", "../x", "é"])
def test_a_name_that_could_confuse_is_refused(endpoint: str, name: str) -> None:
    with pytest.raises(UsageError, match="actor's name"):
        Actor(endpoint, name=name)
