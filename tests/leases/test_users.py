"""Two users on one host: each sees what the other has leased, and can neither break nor fake it."""

import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault
from gpusched.execution.lease_usage import current_leases, with_processes
from gpusched.leases.directory import LeaseDirectory, LeaseHandle
from gpusched.leases.locks import COMMITTER, take_over
from gpusched.linux import file_locks
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import holders
from tests.supervisor.host import Host, start
from tests.supervisor.leasing import NOBODY, SOMEBODY, Fork, as_user, for_all_users, held, share
from tests.supervisor.specs import replica

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")

FAKE = b'{"guard":%10d,"version":1,"uid":0,"user":"root","job":"snake-9","since":1,"run_dir":"/"}\n'
FAKE_SHARE = b'+ {"device_uuid":"GPU-a","share_mib":50,"replica":"actor.0"}\n'


@pytest.fixture
def shared() -> Iterator[LeaseDirectory]:
    with for_all_users() as path:
        yield LeaseDirectory(path)


@pytest.fixture
def hold(shared: LeaseDirectory, tmp_path: Path) -> Iterator[LeaseHandle]:
    """A lease of root's."""
    with shared.locked():
        found = shared.commit("snake-1", [share(1000)], tmp_path)
    yield found
    found.rollback()


def processes_on(*pids: int) -> Inventory:
    processes = tuple(DeviceProcess(pid=pid, memory_mib=100) for pid in pids)
    gpu = Device(index=0, uuid="GPU-a", name="V100", memory_total_mib=16160, processes=processes)
    return Inventory(host="here", source="nvml", devices=(gpu,), cpus=(0,))


def faking(shared: LeaseDirectory, guard: int) -> Fork:
    """Nobody holds a lease that says that it is root's, with that process as its guard."""

    def fake() -> None:
        path = shared.path / "0-snake-9-00000000.lease"
        path.write_bytes(FAKE % guard + FAKE_SHARE)
        descriptor = os.open(path, os.O_RDWR)
        assert file_locks.lock(descriptor, COMMITTER)

    return Fork(NOBODY, fake)


@pytest.mark.usefixtures("hold")
def test_another_user_sees_what_is_leased_and_by_whom(shared: LeaseDirectory, tmp_path: Path) -> None:
    told = as_user(NOBODY, lambda: [msgspec.to_builtins(lease) for lease in shared.read()])
    (lease,) = told
    assert (lease["user"], lease["job"], lease["share_mib"], lease["run_dir"]) == (
        "root",
        "snake-1",
        1000,
        str(tmp_path),
    )
    assert lease["since"] > 0


def test_users_commit_in_turn_beside_each_other_whoever_came_first(shared: LeaseDirectory, tmp_path: Path) -> None:
    def commit() -> None:
        os.umask(0o077)
        run_dir = Path(tempfile.mkdtemp(dir="/tmp"))
        with shared.locked():
            shared.commit("snake-1", [share(300)], run_dir)
        (run_dir / "lease").unlink()
        run_dir.rmdir()

    first = Fork(NOBODY, commit)
    second = Fork(SOMEBODY, commit)
    assert (first.told, second.told) == (b"done", b"done")
    with shared.locked():
        assert sum(lease.share_mib for lease in shared.read()) == 600
        mine = shared.commit("snake-1", [share(400)], tmp_path)
    assert as_user(NOBODY, lambda: sorted(lease.user or "" for lease in shared.read())) == ["", "65533", "root"]
    for one in (first, second):
        one.end()
    assert held(shared) == [("actor.0", "GPU-a", 400)]
    mine.rollback()


def test_another_user_can_break_no_lease(shared: LeaseDirectory, hold: LeaseHandle, tmp_path: Path) -> None:
    def refused(action: Callable[[], object]) -> str:
        return str(as_user(NOBODY, action)).partition(":")[0]

    assert refused(hold.path.unlink) == "PermissionError"
    assert refused(lambda: hold.path.rename(shared.path / "mine.lease")) == "PermissionError"
    assert refused(lambda: hold.path.write_text("")) == "PermissionError"
    assert refused((shared.path / "lock").unlink) == "PermissionError"
    assert refused(lambda: file_locks.lock(os.open(hold.path, os.O_RDONLY), 1)) == "OSError"
    assert refused(lambda: list(tmp_path.iterdir())) == "PermissionError"
    assert held(shared) == [("actor.0", "GPU-a", 1000)]


def test_another_user_can_keep_no_guard_from_its_lease(
    shared: LeaseDirectory, hold: LeaseHandle, tmp_path: Path
) -> None:
    """Who may read a file may lock it for reading: that must be in nobody's way."""
    read_lock = struct.pack("hh4xqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 1, 1, 0)
    fork = Fork(NOBODY, lambda: fcntl.fcntl(os.open(hold.path, os.O_RDONLY), fcntl.F_OFD_SETLK, read_lock))
    assert fork.told == b"done"
    path, descriptor = take_over(str(tmp_path / "lease"), 1.0) or ("", -1)
    hold.release()
    assert path == str(hold.path)
    assert held(shared) == [("actor.0", "GPU-a", 1000)]
    assert stat.S_IMODE(hold.path.stat().st_mode) == 0o644
    assert [one.guard for one in shared.read()] == [os.getpid()]
    os.close(descriptor)
    assert held(shared) == []
    fork.end()


@pytest.mark.usefixtures("hold")
@pytest.mark.parametrize(("files", "shares"), [(5000, 0), (100, 10_000)])
def test_what_another_user_piles_up_is_read_to_a_bound_and_hides_nobody(
    shared: LeaseDirectory, files: int, shares: int
) -> None:
    def pile_up() -> None:
        content = FAKE % 0 + FAKE_SHARE * shares
        for number in range(files):
            descriptor = os.open(shared.path / f"0-{number}.lease", os.O_RDWR | os.O_CREAT, 0o644)
            os.write(descriptor, content)
            if shares:
                assert file_locks.lock(descriptor, COMMITTER)
            else:
                os.close(descriptor)

    fork = Fork(NOBODY, pile_up)
    found = shared.read()
    assert fork.told == b"done"
    assert [lease.share_mib for lease in found if lease.user is None] == [1000]
    assert len(found) < 20_000
    fork.end()


@pytest.mark.parametrize(
    "lie",
    [
        {"since": 1e308},
        {"since": -1e308},
        {"guard": -1},
        {"guard": 1 << 40},
        {"job": "snake-9\n"},
        {"job": "\x1b[2J"},
        {"version": 2},
        {"run_dir": 7},
        {"job": "x" * 1000},
    ],
)
def test_a_lease_that_says_what_cannot_be_is_none(shared: LeaseDirectory, lie: dict[str, object]) -> None:
    header = {"guard": 0, "version": 1, "job": "snake-9", "since": 1, "run_dir": "/"}

    def lying(told: dict[str, object], name: str) -> Callable[[], None]:
        def write() -> None:
            descriptor = os.open(shared.path / name, os.O_RDWR | os.O_CREAT, 0o644)
            os.write(descriptor, msgspec.json.encode(told) + b"\n" + FAKE_SHARE)
            assert file_locks.lock(descriptor, COMMITTER)

        return write

    forks = [Fork(NOBODY, lying(header, "honest.lease")), Fork(NOBODY, lying(header | lie, "lying.lease"))]
    assert [fork.told for fork in forks] == [b"done", b"done"]
    assert held(shared) == [("actor.0", "GPU-a", 50)]
    for fork in forks:
        fork.end()


@pytest.mark.parametrize("share", [{"share_mib": -1}, {"share_mib": 1 << 50}, {"share_mib": 0.5}, {"replica": "a\n"}])
def test_a_share_that_cannot_be_is_none(shared: LeaseDirectory, share: dict[str, object]) -> None:
    line = {"device_uuid": "GPU-a", "share_mib": 50, "replica": "actor.0"} | share

    def lie() -> None:
        descriptor = os.open(shared.path / "lying.lease", os.O_RDWR | os.O_CREAT, 0o644)
        os.write(descriptor, FAKE % 0 + b"+ " + msgspec.json.encode(line) + b"\n")
        assert file_locks.lock(descriptor, COMMITTER)

    fork = Fork(NOBODY, lie)
    assert fork.told == b"done"
    assert held(shared) == []
    fork.end()


def test_a_directory_below_another_users_is_refused(shared: LeaseDirectory) -> None:
    """As /tmp/gpusched-UID may be, made by somebody else: he could put another one in its place."""
    os.chown(shared.path.parent, NOBODY, NOBODY)
    with pytest.raises(HostFault, match="belongs to user nobody"), shared.locked():
        pass


def test_a_lease_is_its_files_owners_whatever_it_says(shared: LeaseDirectory) -> None:
    fork = faking(shared, 0)
    (lease,) = shared.read()
    assert (lease.user, lease.job, lease.job_label) == ("nobody", "snake-9", "nobody/snake-9")
    fork.end()
    assert shared.read() == ()
    with shared.locked():
        shared.read()
    assert (shared.path / "0-snake-9-00000000.lease").exists(), "only its owner clears it up"


@pytest.mark.parametrize("whose", ["root's", "init"])
def test_nobody_can_hide_another_users_process_behind_a_lease(shared: LeaseDirectory, whose: str) -> None:
    fork = faking(shared, os.getpid() if whose == "root's" else 1)
    found = as_user(SOMEBODY, lambda: len(current_leases(shared, processes_on(os.getppid(), fork.pid))))
    assert found == 1, "no process belongs to it"
    fork.end()


def test_a_process_below_another_users_guard_is_that_users_or_foreign(shared: LeaseDirectory) -> None:
    fork = faking(shared, 0)
    (lease,) = shared.read()
    fork.end()
    below = Fork(0, lambda: None)
    apart = msgspec.structs.replace(lease, guard=os.getpid())
    assert [one.pid for one in with_processes([apart], processes_on(below.pid), ())] == [None, below.pid]
    below.end()
    other = Fork(NOBODY, lambda: None)
    assert [one.pid for one in with_processes([apart], processes_on(other.pid), ())] == [None]
    other.end()


def test_another_users_job_is_named_for_its_processes(host: Host, shared: LeaseDirectory) -> None:
    one = host.prepare(replica("actor.0", ("sleep", "1000"), device="GPU-a"))
    with shared.locked():
        hold = shared.commit(one.directory.path.name, [share(1450)], one.directory.path)
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    hold.release()
    pid = one.wait_running("actor.0")

    def look() -> dict[int, tuple[str, str]]:
        found = holders(current_leases(shared, processes_on(pid, os.getpid())))
        return {each: (lease.job_label, lease.replica) for each, lease in found.items()}

    assert as_user(NOBODY, look) == {str(pid): ["root/snake-1", "actor.0"]}


def test_what_another_user_leaves_lying_about_is_passed_over(shared: LeaseDirectory, tmp_path: Path) -> None:
    def litter() -> None:
        os.mkfifo(shared.path / "fifo.lease")
        (shared.path / "zero.lease").symlink_to("/dev/zero")
        (shared.path / "directory.lease").mkdir()
        (shared.path / "closed.lease").write_text("")
        (shared.path / "closed.lease").chmod(0)

    assert as_user(NOBODY, litter) is None
    with shared.locked():
        hold = shared.commit("snake-1", [share(1000)], tmp_path)
        assert held(shared) == [("actor.0", "GPU-a", 1000)]
    assert as_user(SOMEBODY, lambda: len(shared.read())) == 1
    hold.rollback()


def test_a_lock_that_another_user_has_is_told_with_who_it_is(shared: LeaseDirectory) -> None:
    def keep() -> None:
        keeper.enter_context(shared.locked())

    keeper = ExitStack()
    fork = Fork(NOBODY, keep)
    with pytest.raises(HostFault, match=f"held by process {fork.pid} of user nobody"), shared.locked(0.05):
        pass
    fork.end()
    with shared.locked():
        pass


def test_a_directory_of_another_user_is_refused(shared: LeaseDirectory) -> None:
    os.chown(shared.path, NOBODY, NOBODY)
    with pytest.raises(HostFault, match="belongs to user nobody"), shared.locked():
        pass
