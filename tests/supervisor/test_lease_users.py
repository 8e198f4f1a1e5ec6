"""Two users on one host: each sees what the other has leased, and can neither break nor fake it."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import holders
from gpusched.supervisor import filelock
from gpusched.supervisor.grant import COMMITTER
from gpusched.supervisor.lease_files import Hold, LeaseDirectory
from gpusched.supervisor.lease_processes import current_leases, with_processes
from gpusched.supervisor.start import start
from tests.supervisor.host import Host
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
def hold(shared: LeaseDirectory, tmp_path: Path) -> Iterator[Hold]:
    """A lease of root's."""
    with shared.locked():
        found = shared.commit("snake-1", [share(1000)], tmp_path)
    yield found
    found.withdraw()


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
        assert filelock.lock(descriptor, COMMITTER)

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
    mine.withdraw()


def test_another_user_can_break_no_lease(shared: LeaseDirectory, hold: Hold, tmp_path: Path) -> None:
    def refused(action: Callable[[], object]) -> str:
        return str(as_user(NOBODY, action)).partition(":")[0]

    assert refused(hold.path.unlink) == "PermissionError"
    assert refused(lambda: hold.path.rename(shared.path / "mine.lease")) == "PermissionError"
    assert refused(lambda: hold.path.write_text("")) == "PermissionError"
    assert refused((shared.path / "lock").unlink) == "PermissionError"
    assert refused(lambda: filelock.lock(os.open(hold.path, os.O_RDONLY), 1)) == "OSError"
    assert refused(lambda: list(tmp_path.iterdir())) == "PermissionError"
    assert held(shared) == [("actor.0", "GPU-a", 1000)]


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
    hold.let_go()
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
    hold.withdraw()


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
