"""Leases as files: read by everybody, changed by nobody else, gone with who holds them, never more than there is."""

import multiprocessing
import os
import pwd
import random
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.control.place import private_directory
from gpusched.errors import HostFault
from gpusched.leases import locks
from gpusched.leases.directory import LeaseDirectory, LeaseHandle, give_back, lease_directory, leases_of_plan
from gpusched.leases.locks import lock_directory
from gpusched.linux import file_locks
from gpusched.model.device import Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import DeviceShare, Plan, Replica, Request
from gpusched.settings import load_settings
from tests.patience import PATIENCE_S
from tests.supervisor.leasing import committer, held, share


@pytest.fixture
def leases(tmp_path: Path) -> LeaseDirectory:
    return LeaseDirectory(tmp_path / "leases")


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "jobs" / "snake-1"
    path.mkdir(parents=True)
    return path


def commit(directory: LeaseDirectory, run_dir: Path, *mine: Lease) -> LeaseHandle:
    with directory.locked():
        return directory.commit(run_dir.name, mine, run_dir)


def test_what_was_committed_is_held_until_it_is_withdrawn(leases: LeaseDirectory, run_dir: Path) -> None:
    assert leases.read() == ()
    before = time.time()
    hold = commit(leases, run_dir, share(1000), replace(share(500, "actor.1", "GPU-b"), whole=True))
    found = leases.read()
    assert [(one.replica, one.device_uuid, one.share_mib, one.whole) for one in found] == [
        ("actor.0", "GPU-a", 1000, False),
        ("actor.1", "GPU-b", 500, True),
    ]
    assert {(one.job, one.user, one.pid, one.guard, one.run_dir) for one in found} == {
        ("snake-1", None, None, None, str(run_dir))
    }
    assert all(before <= one.since <= time.time() for one in found)
    hold.rollback()
    assert leases.read() == ()
    assert list(leases.path.iterdir()) == [leases.path / "lock"]


def test_a_lease_is_for_all_to_read_and_its_directory_is_its_owners(leases: LeaseDirectory, run_dir: Path) -> None:
    before = os.umask(0o077)
    hold = commit(leases, run_dir, share(1000))
    os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (leases.path, leases.path / "lock", hold.path)]
    assert modes == [0o700, 0o666, 0o644]
    assert (run_dir / "lease").readlink() == hold.path
    hold.rollback()


def test_a_killed_committer_frees_its_lease_and_the_next_to_commit_clears_up(
    leases: LeaseDirectory, run_dir: Path
) -> None:
    with committer(leases, run_dir) as process:
        assert held(leases) == [("actor.0", "GPU-a", 1000)]
        process.kill()
    assert leases.read() == ()
    (leases.path / f"{os.getuid()}-half.new").write_text("what a killed committer had not finished")
    assert len(list(leases.path.iterdir())) == 3, "who only reads removes nothing"
    with leases.locked():
        leases.read()
    assert list(leases.path.iterdir()) == [leases.path / "lock"]


def test_a_replica_gives_its_shares_back_and_no_other_does(leases: LeaseDirectory, run_dir: Path) -> None:
    hold = commit(leases, run_dir, share(1000), share(900, "actor.1"), share(800, "actor.0", "GPU-b"))
    give_back(run_dir / "lease", "actor.0")
    give_back(run_dir / "lease", "actor.0")
    give_back(run_dir / "lease", "actor.7")
    assert held(leases) == [("actor.1", "GPU-a", 900)]
    hold.rollback()
    give_back(run_dir / "lease", "actor.1")


def test_nobody_commits_without_the_lock(leases: LeaseDirectory, run_dir: Path) -> None:
    with leases.locked():
        pass
    with pytest.raises(AssertionError):
        leases.commit("snake-1", [share(1)], run_dir)


def test_a_failed_commit_leaves_nothing(leases: LeaseDirectory, run_dir: Path) -> None:
    with pytest.raises(HostFault, match="lease"):
        commit(leases, run_dir / "missing", share(1000))
    assert leases.read() == ()
    assert list(leases.path.iterdir()) == [leases.path / "lock"]


def test_who_has_the_lock_too_long_is_named(leases: LeaseDirectory) -> None:
    with leases.locked(), pytest.raises(HostFault) as told, LeaseDirectory(leases.path).locked(0.1):
        pass
    user = pwd.getpwuid(os.getuid()).pw_name
    assert told.value.message == f"{leases.path}/lock is held by process {os.getpid()} of user {user}"
    with leases.locked(0):
        pass


def test_a_lock_file_that_was_replaced_is_no_lock(leases: LeaseDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited on the old file must not come in beside who locks the new one."""
    with leases.locked():
        opened: list[int] = []
        real = locks._open_lock

        def opening(path: str) -> int:
            descriptor = real(path)
            if not opened:
                (leases.path / "lock").unlink()
            opened.append(descriptor)
            return descriptor

        monkeypatch.setattr(locks, "_open_lock", opening)
        descriptor = lock_directory(str(leases.path), 5.0)
    assert len(opened) == 2
    assert os.fstat(descriptor).st_ino == (leases.path / "lock").stat().st_ino
    os.close(descriptor)


@pytest.mark.parametrize("kind", ["fifo", "directory", "symlink"])
def test_a_lock_that_is_no_file_is_told_and_never_waited_for(leases: LeaseDirectory, kind: str) -> None:
    leases.path.mkdir(mode=0o700)
    path = leases.path / "lock"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(HostFault, match="lock: "), leases.locked(0.1):
        pass


def test_a_directory_in_which_others_can_remove_leases_is_refused(leases: LeaseDirectory) -> None:
    leases.path.mkdir()
    leases.path.chmod(0o777)
    with pytest.raises(HostFault, match="lets others remove leases"), leases.locked():
        pass
    leases.path.chmod(0o1777)
    with leases.locked():
        pass


def test_a_lease_directory_that_cannot_be_made_is_the_hosts_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HostFault, match="file"), LeaseDirectory(tmp_path / "file" / "leases").locked():
        pass


HOSTILE = {
    "empty": b"",
    "no header": b'+ {"device_uuid":"GPU-a","share_mib":1,"replica":"actor.0"}\n',
    "another version": b'{"guard":0,"version":2,"job":"snake-1","since":0,"run_dir":"/"}\n',
    "a negative share": b'{"guard":0,"version":1,"job":"snake-1","since":0,"run_dir":"/"}\n'
    b'+ {"device_uuid":"GPU-a","share_mib":-99999,"replica":"actor.0"}\n',
    "control characters": b'{"guard":0,"version":1,"job":"\\u001b[2J","since":0,"run_dir":"/"}\n'
    b'+ {"device_uuid":"GPU-a","share_mib":1,"replica":"actor.0"}\n',
    "bytes": bytes(range(256)) * 20,
    "brackets": b"[" * 100_000,
    "half": b'{"guard":',
}


@pytest.fixture
def hostile(leases: LeaseDirectory) -> Iterator[list[int]]:
    """The directory full of what is no lease, all of it locked as a lease is."""
    leases.path.mkdir(mode=0o700)
    descriptors = []
    for name, content in HOSTILE.items():
        (leases.path / f"{name}.lease").write_bytes(content)
    with (leases.path / "huge.lease").open("wb") as file:
        file.write(b'{"guard":0,"version":1,"job":"snake-1","since":0,"run_dir":"/"}\n')
        file.truncate(1 << 40)
    for path in leases.path.iterdir():
        descriptors.append(os.open(path, os.O_RDWR))
        file_locks.lock(descriptors[-1], 0)
    os.mkfifo(leases.path / "fifo.lease")
    (leases.path / "directory.lease").mkdir()
    (leases.path / "zero.lease").symlink_to("/dev/zero")
    (leases.path / "loop.lease").symlink_to("loop.lease")
    (leases.path / "other name").write_text("nothing")
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.usefixtures("hostile")
def test_what_is_no_lease_breaks_nothing_and_holds_nothing(leases: LeaseDirectory, run_dir: Path) -> None:
    hold = commit(leases, run_dir, share(1000))
    with leases.locked():
        assert held(leases) == [("actor.0", "GPU-a", 1000)]
    assert (leases.path / "fifo.lease").exists()
    hold.rollback()


def test_a_lease_under_two_names_counts_once(leases: LeaseDirectory, run_dir: Path) -> None:
    hold = commit(leases, run_dir, share(1000))
    (leases.path / "copy.lease").hardlink_to(hold.path)
    (leases.path / "link.lease").symlink_to(hold.path)
    assert held(leases) == [("actor.0", "GPU-a", 1000)]
    hold.rollback()


def test_a_plan_leases_every_device_of_every_replica() -> None:
    two = Replica(
        name="command.0",
        role="command",
        rank=0,
        device_uuid="GPU-a",
        limit_mib=1000,
        context_mib=450,
        further=(DeviceShare(device_index=1, device_uuid="GPU-b", share_mib=1400),),
    )
    plan = Plan(
        inventory=Inventory(host="here", source="nvml", devices=(), cpus=()),
        request=Request(workload="run", roles=()),
        policy="balanced",
        devices=(),
        replicas=(two, Replica(name="cpu.0", role="cpu", rank=0)),
    )
    assert [(one.job, one.replica, one.device_uuid, one.share_mib) for one in leases_of_plan(plan, "run-1")] == [
        ("run-1", "command.0", "GPU-a", 1450),
        ("run-1", "command.0", "GPU-b", 1400),
    ]


def test_simulated_devices_are_leased_within_their_state_directory(tmp_path: Path) -> None:
    environ = {"HOME": "/", "GPUSCHED_STATE_DIR": str(tmp_path), "GPUSCHED_LEASE_DIR": "/run/leases"}
    settings = load_settings(environ)
    assert lease_directory(settings, simulated=True).path == tmp_path / "simulated-leases"
    assert lease_directory(settings, simulated=False).path == Path("/run/leases")


TOTAL = 1000


def take_and_leave(path: Path, run_dir: Path, seed: int, over: Path) -> None:
    """Plan, commit and give back until `over` exists; tell by a file beside it if ever more was leased than there is.

    What is in memory that they share, a process that is killed could leave locked.
    """
    dice, directory, holds = random.Random(seed), LeaseDirectory(path), list[LeaseHandle]()  # noqa: S311
    while not over.exists():
        with directory.locked(30):
            free = TOTAL - sum(one.share_mib for one in directory.read())
            if free < 0:
                over.with_name("failed").touch()
            wanted = dice.randrange(1, 600)
            if wanted <= free:
                holds.append(directory.commit(run_dir.name, [share(wanted)], run_dir))
        if dice.random() < 0.6 and holds:
            holds.pop(dice.randrange(len(holds))).rollback()
        time.sleep(0.01 * dice.random())


def test_committers_that_race_and_are_killed_never_lease_more_than_there_is(
    leases: LeaseDirectory, tmp_path: Path
) -> None:
    fork, dice = multiprocessing.get_context("fork"), random.Random(3)  # noqa: S311
    over, running = tmp_path / "over", []

    def begin(seed: int) -> None:
        run_dir = tmp_path / f"job-{seed}"
        run_dir.mkdir()
        running.append(fork.Process(target=take_and_leave, args=(leases.path, run_dir, seed, over), daemon=True))
        running[-1].start()

    for seed in range(6):
        begin(seed)
    most, free_again = 0, 0
    for seed in range(6, 46):
        victim = running.pop(dice.randrange(len(running)))
        victim.kill()
        victim.join()
        begin(seed)
        with leases.locked(30):
            leased = sum(one.share_mib for one in leases.read())
        assert leased <= TOTAL
        most, free_again = max(most, leased), free_again + (leased < TOTAL // 2)
    over.touch()
    for process in running:
        process.join(PATIENCE_S)
    assert not over.with_name("failed").exists()
    assert most > TOTAL // 2, "there was something to race for"
    assert leases.read() == ()
    with leases.locked():
        leases.read()
    assert [path.name for path in leases.path.iterdir()] == ["lock"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_directory_that_is_missing_is_made_private_with_those_above_it(tmp_path: Path, umask: int) -> None:
    """The one above is where sockets will lie, and no daemon starts if others can enter it."""
    before = os.umask(umask)
    try:
        with LeaseDirectory(tmp_path / "run" / "leases").locked():
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "run" / "leases").stat().st_mode) == 0o700
    private_directory(tmp_path / "run")
