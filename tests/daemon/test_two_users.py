"""Two users of one host, each with a daemon: they wait for each other, and cannot look into each other's affairs."""

import os
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from gpusched.control.client import control_socket
from gpusched.leases.directory import LeaseDirectory
from gpusched.settings import load_settings
from tests.daemon.users import TOKEN, User, space_for_all, why_not
from tests.patience import until
from tests.stand_in.library import StandIn
from tests.supervisor.leasing import NOBODY, SOMEBODY, Fork, as_user

ONE_DEVICE = "gpus 1\nset * used 0\n"
Pair = tuple[User, User]


@pytest.fixture(params=[0o000, 0o077], ids=["umask 000", "umask 077"])
def pair(request: pytest.FixtureRequest, stand_in: StandIn) -> Iterator[Pair]:
    """Two users in whose shells everything that is made is open to all, or to nobody else."""
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        base.chmod(0o755)
        (base / "leases").mkdir()
        (base / "leases").chmod(0o1777)
        library = Path(stand_in.host(ONE_DEVICE).env["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
        (base / library.name).write_bytes(library.read_bytes())
        (base / "scenario").write_text(ONE_DEVICE)
        (base / "space").mkdir()
        space = stack.enter_context(space_for_all(base / "space"))
        env = {
            "LD_LIBRARY_PATH": str(base),
            "NVML_STAND_IN": str(base / "scenario"),
            "GPUSCHED_LEASE_DIR": str(base / "leases"),
        }
        users = []
        for uid in (NOBODY, SOMEBODY):
            users.append(User(uid, base / f"home-{uid}", env, space=space, umask=request.param))
            stack.callback(users[-1].end)
        yield users[0], users[1]


def refused(uid: int, action: Callable[[], object]) -> bool:
    return str(as_user(uid, lambda: repr(action()))).startswith("PermissionError")


def connected(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(path))


def opened_by(uid: int, paths: list[Path]) -> list[str]:
    """The files among `paths` that this user can read or write, and the directories that it can list or change."""

    def attempt() -> list[str]:
        return [str(path) for path in paths if os.access(path, os.R_OK) or os.access(path, os.W_OK)]

    found = as_user(uid, attempt)
    assert isinstance(found, list), found
    return found


def test_the_second_user_waits_for_the_first_ones_job_and_neither_can_look_into_the_other(pair: Pair) -> None:
    alice, bob = pair
    first = alice.submit("--fraction", "0.7")
    until(lambda: alice.runs(first), "the first user's job runs")
    second = bob.submit("--fraction", "0.7")
    until(lambda: f"leased to nobody/{first}" in str(bob.see(second)["why"]), "the second user's job waits for it")
    assert bob.see(second)["state"] == "queued"
    assert bob.told("status")["devices"][0]["memory_leased_mib"] > 10_000
    for one, other in ((alice, bob), (bob, alice)):
        assert_closed(one, other)
    lease = next((alice.home.parent / "leases").glob(f"{NOBODY}-*.lease"))
    assert stat.S_IMODE(lease.stat().st_mode) == 0o644
    assert TOKEN not in lease.read_text()
    assert refused(SOMEBODY, lease.unlink)
    assert bob.run("stop", "snake-1").returncode == 4
    assert alice.runs(first)
    alice.told("stop", first)
    until(lambda: bob.runs(second), "the second user's job starts when the first one's has ended")


def assert_closed(one: User, other: User) -> None:
    """Nothing that `one` has can be read or reached by `other`, and no secret is where others can see it."""
    socket_path = control_socket(load_settings(one.env))
    files, running = one.files(), one.running()
    private = {"gpusched.db", "gpusched.db-wal", "daemon.log", "daemon.lock", "jobs", socket_path.name}
    assert private <= {path.name for path in files}
    assert running
    assert opened_by(other.uid, files) == []
    assert refused(other.uid, lambda: connected(socket_path))
    for pid in running:
        assert refused(other.uid, Path(f"/proc/{pid}/environ").read_bytes)
        assert refused(other.uid, partial(os.kill, pid, signal.SIGSTOP))
        assert one.secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for path in files:
        if path.is_file() and not path.name.startswith("gpusched.db"):
            assert one.secret.encode() not in path.read_bytes(), path
        if path.name in private:
            assert not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize("pair", [0o022], ids=["umask 022"], indirect=True)
def test_a_lock_that_another_users_stopped_process_holds_is_told_and_leaves_the_daemon_its_ears(pair: Pair) -> None:
    _, bob = pair
    shared = LeaseDirectory(Path(bob.env["GPUSCHED_LEASE_DIR"]))
    keeper = ExitStack()
    fork = Fork(NOBODY, partial(keeper.enter_context, shared.locked()))
    os.kill(fork.pid, signal.SIGSTOP)
    try:
        job = bob.submit("--num-gpus", "1")
        until(lambda: f"is held by process {fork.pid} of user nobody" in str(bob.see(job)["why"]), "he is told who")
        bob.told("daemon", "status")  # it fails where the daemon does not answer soon
    finally:
        fork.end()
    until(lambda: bob.runs(job), "the job starts when the lock is free")
