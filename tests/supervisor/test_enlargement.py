"""A replica that ran out of its device's memory is started again with more, as far as its device has room."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.execution.directory import JobDirectory, create
from gpusched.execution.orders import OverrunOrder
from gpusched.execution.spec import DeviceRoom, JobSpec
from gpusched.leases.directory import LeaseDirectory, LeaseHandle, leases_of_replicas, replace_share
from gpusched.model.lease import Lease
from gpusched.model.plan import ReplicaSpec
from gpusched.model.status import JobState
from gpusched.model.workload import Restart
from gpusched.supervisor.enlargement import Enlargement
from tests.patience import until
from tests.supervisor.host import Host, start
from tests.supervisor.leasing import held
from tests.supervisor.specs import job, replica

LACKS = (
    "import os, sys, time\n"
    "limit = int(os.environ.get('GPUSCHED_MEMORY_LIMIT_MIB', 0))\n"
    "print('limit', limit, flush=True)\n"
    "if limit < 1500: sys.exit('torch.OutOfMemoryError: CUDA out of memory')\n"
    "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
)


def on_device(name: str, *argv: str, limit: int = 1000) -> ReplicaSpec:
    made = replica(name, argv or ("true",), device="GPU-a")
    return replace(made, replica=replace(made.replica, limit_mib=limit))


def committed(directory: JobDirectory, leases: LeaseDirectory, spec: JobSpec, *others: Lease) -> LeaseHandle:
    with leases.locked():
        shares = leases_of_replicas((one.replica for one in spec.replicas), spec.id)
        return leases.commit(spec.id, (*shares, *others), directory.path)


def spec_with(room: int, *replicas: ReplicaSpec) -> JobSpec:
    rooms = {"GPU-a": DeviceRoom(total_mib=16_160, most_mib=room)}
    return replace(job(*replicas), rooms=rooms, xla_variable="XLA_CLIENT_MEM_FRACTION")


@pytest.mark.parametrize(
    ("room", "limit", "note"),
    [
        (10_000, 1256, "out of memory at 1000 MiB: again with 1256"),
        (1600, 1150, "out of memory at 1000 MiB: again with 1150"),
        (1460, 1000, "out of memory at 1000 MiB: again with as much, because its device has no more to give"),
    ],
    ids=["a fifth more, and 256 MiB at least", "what the device can give", "too little to be of use"],
)
def test_what_a_lack_of_memory_makes_of_a_limit_is_what_the_device_has_room_for(
    tmp_path: Path, room: int, limit: int, note: str
) -> None:
    directory, leases = create(tmp_path, "snake"), LeaseDirectory(tmp_path / "leases")
    spec = spec_with(room, on_device("actor.0"))
    handle = committed(directory, leases, spec)
    enlargement = Enlargement(directory, spec)
    assert enlargement.next(spec.replicas[0]) is spec.replicas[0]
    enlargement.lacked("actor.0")
    after = enlargement.next(spec.replicas[0])
    assert after.replica.limit_mib == limit
    assert [mib for _, _, mib in held(leases)] == [limit + 450]
    (event,) = enlargement.news("actor.0", 77, 1.0)
    assert event.order == OverrunOrder(replica="actor.0", pid=77, message=note)
    assert not list(enlargement.news("actor.0", 77, 1.0))
    if limit > 1000:
        assert after.env["GPUSCHED_MEMORY_LIMIT_MIB"] == str(limit)
        assert after.env["GPUSCHED_MEMORY_FRACTION"] == f"{limit * 10_000 // 16_160 / 10_000:.4f}"
    assert enlargement.next(after) is after, "one lack, one step"
    handle.release()


def test_no_replica_gets_more_than_its_role_may_have(tmp_path: Path) -> None:
    directory, leases = create(tmp_path, "snake"), LeaseDirectory(tmp_path / "leases")
    spec = replace(spec_with(10_000, on_device("actor.0")), most_mib={"actor": 1100})
    handle = committed(directory, leases, spec)
    enlargement = Enlargement(directory, spec)
    enlargement.lacked("actor.0")
    larger = enlargement.next(spec.replicas[0])
    assert larger.replica.limit_mib == 1100
    assert list(enlargement.news("actor.0", 77, 1.0))
    enlargement.lacked("actor.0")
    assert enlargement.next(larger) is larger
    (event,) = enlargement.news("actor.0", 78, 2.0)
    assert event.order.message == "out of memory at 1100 MiB: again with as much, because that is the max of role actor"
    handle.release()


def test_what_others_hold_by_now_is_not_taken(tmp_path: Path) -> None:
    directory, leases = create(tmp_path, "snake"), LeaseDirectory(tmp_path / "leases")
    spec = spec_with(3000, on_device("actor.0"), on_device("actor.1"))
    handle = committed(directory, leases, spec)
    enlargement = Enlargement(directory, spec)
    enlargement.lacked("actor.1")
    assert enlargement.next(spec.replicas[1]).replica.limit_mib == 1100
    assert sorted(held(leases)) == [("actor.0", "GPU-a", 1450), ("actor.1", "GPU-a", 1550)]
    handle.release()


def test_a_lease_that_is_gone_or_of_which_the_share_was_given_back_grows_no_more(tmp_path: Path) -> None:
    directory, leases = create(tmp_path, "snake"), LeaseDirectory(tmp_path / "leases")
    spec = spec_with(9000, on_device("actor.0"))
    handle = committed(directory, leases, spec)
    handle.path.unlink()
    enlargement = Enlargement(directory, spec)
    enlargement.lacked("actor.0")
    assert enlargement.next(spec.replicas[0]) is spec.replicas[0]
    (event,) = enlargement.news("actor.0", 77, 1.0)
    assert event.order.message == "out of memory at 1000 MiB: again with as much, because its lease is gone"
    directory.lease.unlink()
    directory.lease.symlink_to(tmp_path / "elsewhere" / "a.lease")
    enlargement.lacked("actor.0")
    assert enlargement.next(spec.replicas[0]) is spec.replicas[0]
    assert not (tmp_path / "elsewhere").exists()
    handle.release()


def test_a_file_that_ends_amid_a_line_is_left_as_it_is(tmp_path: Path) -> None:
    directory, leases = create(tmp_path, "snake"), LeaseDirectory(tmp_path / "leases")
    handle = committed(directory, leases, spec_with(9000, on_device("actor.0")))
    whole = handle.path.read_bytes()
    handle.path.write_bytes(whole[:-1])
    with pytest.raises(OSError, match="has no room"):
        replace_share(handle.path, "actor.0", "GPU-a", 2000)
    assert handle.path.read_bytes() == whole[:-1]
    handle.release()


def test_a_replica_that_lacks_memory_runs_again_with_more_until_it_fits(host: Host, tmp_path: Path) -> None:
    leases, go = LeaseDirectory(tmp_path / "leases"), tmp_path / "go"
    actor = on_device("actor.0", sys.executable, "-S", "-c", LACKS, str(go))
    wanted = spec_with(9000, actor)
    one = host.prepare(actor, rooms=wanted.rooms, xla_variable=wanted.xla_variable, restart={"actor": Restart(max=5)})
    handle = committed(one.directory, leases, one.directory.read_spec())
    one.supervisor = start(one.directory, one.directory.read_spec(), host.environ(one))
    one.wait_output("actor.0", "limit 1512")
    until(lambda: one.replica("actor.0").limit_mib == 1512, "the status has the limit")
    shown = one.replica("actor.0")
    assert (shown.limit_mib, shown.share_mib) == (1512, 1962)
    assert shown.warning == "out of memory at 1256 MiB: again with 1512"
    assert [mib for _, _, mib in held(leases)] == [1962]
    go.touch()
    assert one.wait_ended().state is JobState.SUCCEEDED
    for line in ("limit 1256", "out of memory at 1000 MiB: again with 1256", "limit 1512"):
        assert line in one.output("actor.0")
    handle.release()
