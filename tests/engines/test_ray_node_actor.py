"""What Ray runs on a node, run here without Ray: real processes with pipes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusched.engines.ray.node_actor import NodeActor, file_mark, node_environment
from tests.patience import PATIENCE_S

ECHO = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)\nsys.exit('it is over')"


@pytest.fixture
def left() -> list[int]:
    """The exit codes with which a keeper has left this process, if it were one that Ray had made."""
    return []


@pytest.fixture
def keep(left: list[int]) -> Iterator[Callable[[float], NodeActor]]:
    """Start a keeper with a patience; it is released at the end."""
    kept: list[NodeActor] = []

    def keep(patience_s: float) -> NodeActor:
        kept.append(NodeActor(left.append))
        kept[-1].start([sys.executable, "-S", "-c", ECHO], os.environ, b"the order\n", patience_s)
        return kept[-1]

    yield keep
    for one in kept:
        with one._process, one._errors:
            one._process.kill()
            one.release()


@pytest.fixture
def keeper(keep: Callable[[float], NodeActor]) -> NodeActor:
    return keep(600)


def receive(keeper: NodeActor, until: bytes) -> bytes:
    heard = b""
    while until not in heard:
        part = keeper.receive()
        assert part is not None, heard
        heard += part
    return heard


def test_the_process_hears_its_order_and_what_is_said_later_and_is_heard(keeper: NodeActor) -> None:
    assert receive(keeper, b"\n") == b"heard the order\n"
    keeper.send(b"stop\n")
    assert receive(keeper, b"\n") == b"heard stop\n"


def test_a_process_that_has_ended_is_told_of_with_its_last_complaint(keeper: NodeActor) -> None:
    assert keeper._process.stdin is not None
    receive(keeper, b"\n")
    keeper._process.stdin.close()
    assert keeper.receive() is None
    assert keeper.ended() == (1, "it is over")


def test_one_that_was_killed_is_known_by_its_signal_and_may_still_be_spoken_to(keeper: NodeActor) -> None:
    receive(keeper, b"\n")
    os.kill(keeper._process.pid, signal.SIGKILL)
    assert keeper.receive() is None
    assert keeper.ended()[0] == -signal.SIGKILL
    keeper.send(b"stop\n")


def test_a_keeper_that_is_released_never_ends_its_process_nor_the_one_in_which_it_is(
    keep: Callable[[float], NodeActor], left: list[int]
) -> None:
    before = set(threading.enumerate())
    kept = keep(600)
    (thread,) = set(threading.enumerate()) - before
    kept.release()
    assert not thread.is_alive()
    assert kept._process.poll() is None
    assert not left


def test_a_keeper_whose_process_has_ended_leaves_no_thread_that_would_end_another(
    keeper: NodeActor, left: list[int]
) -> None:
    assert keeper._process.stdin is not None
    receive(keeper, b"\n")
    keeper._process.stdin.close()
    assert keeper.receive() is None
    keeper.ended()
    assert not {thread.name for thread in threading.enumerate()} & {"end unheard"}
    assert not left


def test_a_keeper_that_nobody_hears_leaves_once_its_process_has_ended(
    keep: Callable[[float], NodeActor], left: list[int]
) -> None:
    kept = keep(0)
    assert kept._watch is not None
    kept._watch.join()
    assert kept._process.returncode == 1, "its input was closed, and it ended by itself"
    assert left == [1]


UNHEARD = """
import os, sys, time
from gpusched.engines.ray.node_actor import NodeActor

left = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').close()"
NodeActor(os._exit).start([sys.executable, "-S", "-c", left, sys.argv[1]], os.environ, b"the order\\n", 0.2)
time.sleep(600)
"""


def test_a_keeper_that_nobody_hears_ends_its_process_in_order_and_itself(tmp_path: Path) -> None:
    words = [sys.executable, "-c", UNHEARD, str(tmp_path / "left")]
    assert subprocess.run(words, check=False, timeout=PATIENCE_S).returncode == 1
    assert (tmp_path / "left").exists()


def test_the_environment_is_that_of_who_submitted_but_for_what_is_the_nodes() -> None:
    sent = {"KERAS_BACKEND": "jax", "HOME": "/home/me", "GPUSCHED_STATE_DIR": "/s", "XDG_RUNTIME_DIR": "/run/user/7"}
    here = {"HOME": "/root", "CUDA_VISIBLE_DEVICES": "2,3", "GPUSCHED_RUNTIME_DIR": "/r", "RAY_JOB_ID": "1", "PS1": "$"}
    assert node_environment(sent, here) == {
        "KERAS_BACKEND": "jax",
        "HOME": "/root",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "GPUSCHED_RUNTIME_DIR": "/r",
    }


def test_a_file_is_known_from_any_other(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch()
    other.touch()
    (tmp_path / "link").hardlink_to(one)
    assert file_mark(str(one)) == file_mark(str(tmp_path / "link")) != file_mark(str(other))
    assert file_mark(str(tmp_path / "none")) is None
