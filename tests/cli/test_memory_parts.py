"""A device's memory falls into parts that add up, and a bar shows every part of it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.plan import DeviceShare
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus
from gpusched.render.memory_parts import MemoryParts
from gpusched.render.table import cell_widths


def snapshot(device: Device, replicas: list[ReplicaStatus], holders: dict[int, Lease]) -> Snapshot:
    job = JobStatus(
        id="snake-1", workload="snake", state=JobState.RUNNING, counts=(1,), replicas=tuple(replicas), run_dir=""
    )
    inventory = Inventory(host="here", source="nvml", devices=(device,), cpus=(0,))
    return Snapshot(inventory=inventory, jobs=(job,), leases=(), holders=holders, time=0.0)


def actor(share_mib: int, used_mib: int | None) -> ReplicaStatus:
    return ReplicaStatus(
        name="actor.0",
        role="actor",
        state=ReplicaState.RUNNING,
        device_uuid="GPU-a",
        share_mib=share_mib,
        used_mib=used_mib,
    )


def device(total: int | None, used: int | None, *amounts: int | None) -> Device:
    processes = tuple(DeviceProcess(pid=10 + number, memory_mib=amount) for number, amount in enumerate(amounts))
    return Device(index=0, uuid="GPU-a", name="V100", memory_total_mib=total, memory_used_mib=used, processes=processes)


def amounts(parts: object) -> dict[str, int]:
    return {part.kind: part.mib for part in parts}  # type: ignore[attr-defined]


def test_use_share_foreign_and_free_add_up_to_the_total() -> None:
    gpu = device(16160, 1300, 812, 487)
    lease = Lease(device_uuid="GPU-a", share_mib=1583, job="snake-1", replica="actor.0", pid=10)
    parts = MemoryParts(snapshot(gpu, [actor(1583, 812)], {10: lease})).of(gpu)
    told = {"used": 812, "leased": 771, "others": 0, "foreign": 487, "other": 1, "reserved": 0}
    told["free"] = 16160 - 1583 - 488
    assert amounts(parts) == told


def test_use_that_nvml_does_not_attribute_counts_for_the_job_up_to_its_share() -> None:
    gpu = device(16160, 2000)
    told = amounts(MemoryParts(snapshot(gpu, [actor(1583, None)], {})).of(gpu))
    assert (told["used"], told["leased"], told["foreign"], told["other"]) == (1583, 0, 0, 417)


def test_what_another_user_has_leased_and_does_not_use_yet_is_not_free() -> None:
    gpu = device(16160, 500, 500)
    theirs = Lease(device_uuid="GPU-a", share_mib=2000, job="snake-1", replica="actor.0", user="alice")
    using = msgspec.structs.replace(theirs, share_mib=0, pid=10)
    shown = msgspec.structs.replace(snapshot(gpu, [], {10: using}), leases=(theirs, using))
    told = amounts(MemoryParts(shown).of(gpu))
    assert (told["foreign"], told["others"], told["free"]) == (500, 1500, 16160 - 2000)


def test_every_device_of_a_command_shows_its_part() -> None:
    gpu = device(16160, 900, 900)
    one = msgspec.structs.replace(
        actor(16000, 800),
        device_uuid="GPU-z",
        further=(DeviceShare(device_index=0, device_uuid="GPU-a", share_mib=15000),),
    )
    lease = Lease(device_uuid="GPU-z", share_mib=16000, job="snake-1", replica="actor.0", pid=10)
    told = amounts(MemoryParts(snapshot(gpu, [one], {10: lease})).of(gpu))
    assert (told["used"], told["leased"], told["foreign"]) == (900, 14100, 0)


def test_a_device_that_does_not_tell_its_total_has_no_parts() -> None:
    assert MemoryParts(snapshot(device(None, None), [], {})).of(device(None, None)) == []


@given(
    total=st.integers(0, 1 << 20),
    used=st.none() | st.integers(0, 1 << 20),
    shares=st.lists(st.tuples(st.integers(0, 1 << 18), st.none() | st.integers(0, 1 << 18)), max_size=4),
)
def test_the_parts_never_tell_less_than_the_total(
    total: int, used: int | None, shares: list[tuple[int, int | None]]
) -> None:
    gpu = device(total, used)
    parts = MemoryParts(snapshot(gpu, [actor(*share) for share in shares], {})).of(gpu)
    assert all(part.mib >= 0 for part in parts)
    assert sum(part.mib for part in parts) >= total


@given(parts=st.lists(st.integers(0, 1 << 20), max_size=12), cells=st.integers(0, 200))
def test_a_bar_is_exactly_as_wide_as_it_may_be_and_shows_every_part_it_can(parts: list[int], cells: int) -> None:
    widths = cell_widths(parts, cells)
    assert len(widths) == len(parts)
    assert sum(widths) == (cells if any(parts) else 0)
    assert all(width >= 0 for width in widths)
    assert all(width == 0 for width, part in zip(widths, parts, strict=True) if part == 0)
    if sum(part > 0 for part in parts) <= cells:
        assert all(width > 0 for width, part in zip(widths, parts, strict=True) if part > 0)
