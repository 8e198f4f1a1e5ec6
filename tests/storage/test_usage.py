"""What jobs used, by role: summed up from their replicas, kept with the end of a job, and found again."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.model.status import JobState, JobStatus, ReplicaStatus
from gpusched.model.usage import RoleUsage, Usage
from gpusched.storage.role_usage import roles_used
from gpusched.storage.store import Store
from gpusched.storage.tables import VERSION
from tests.storage.records import ended

MIB = st.none() | st.integers(0, 80_000)
USAGES = st.lists(
    st.builds(
        Usage,
        attempt=st.integers(0, 9),
        seconds=st.floats(0, 1e6),
        cpu_s=st.none() | st.floats(0, 1e6),
        host_mib=MIB,
        device_mib=MIB,
    ),
    min_size=1,
    max_size=3,
)


def job(*replicas: Sequence[Usage], role: str = "actor") -> JobStatus:
    parts = tuple(
        ReplicaStatus(name=f"{role}.{number}", role=role, share_mib=1000 + number, limit_mib=500, usage=tuple(usage))
        for number, usage in enumerate(replicas)
    )
    return JobStatus(
        id="snake-1", workload="snake", state=JobState.SUCCEEDED, counts=(), replicas=parts, run_dir="/j", ended=9.0
    )


@given(st.lists(USAGES, min_size=1, max_size=4))
def test_memory_is_that_of_the_largest_replica_and_cpu_time_of_all_together(replicas: list[list[Usage]]) -> None:
    (row,) = roles_used(job(*replicas))
    every = [usage for usages in replicas for usage in usages]
    for name in ("device_mib", "host_mib"):
        known = [mib for usage in every if (mib := getattr(usage, name)) is not None]
        assert getattr(row, name) == (max(known) if known else None)
    cpu_s = [usage.cpu_s for usage in every if usage.cpu_s is not None]
    assert row.cpu_s == (round(sum(cpu_s), 3) if cpu_s else None)
    assert (row.replicas, row.share_mib, row.limit_mib, row.ended) == (len(replicas), 1000, 500, 9.0)
    assert row.seconds == max(sum(usage.seconds for usage in usages) for usages in replicas)


def test_a_replica_that_has_not_begun_is_no_use() -> None:
    assert roles_used(job(())) == []
    assert [row.replicas for row in roles_used(job((), [Usage(attempt=0, seconds=1.0)]))] == [1]


def with_usage(number: int, mib: int) -> RoleUsage:
    used = ended(number)
    assert used.last is not None
    replicas = tuple(
        replace(one, share_mib=4000, usage=(Usage(attempt=0, seconds=60.0, device_mib=mib),))
        for one in used.last.replicas
    )
    return roles_used(replace(used.last, replicas=replicas))[0]


def test_usage_is_kept_with_the_end_and_goes_with_the_job(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        for number in range(1, 6):
            one = ended(number)
            assert one.last is not None
            usage = (Usage(attempt=0, seconds=60.0, device_mib=number),)
            replicas = tuple(replace(each, usage=usage) for each in one.last.replicas)
            store.add(
                replace(one, ended=1000.0 + number, last=replace(one.last, ended=1000.0 + number, replicas=replicas))
            )
        found = store.usage.since(1003.0, 100)
        ends = [row.ended or 0.0 for row in found]
        assert ends == sorted(ends, reverse=True)
        assert {row.device_mib for row in found} == {3, 4, 5}
        assert {row.device_mib for row in store.usage.since(0.0, len(found) // 3)} == {5}
        last = ended(5).id
        assert {row.device_mib for row in store.usage.of([last, "none-1"])} == {5}
        store.remove([last])
        assert not store.usage.of([last])


def test_a_store_of_the_version_before_opens_with_all_its_jobs(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    with closing(Store.open(path)) as store:
        store.add(ended(1))
    with closing(sqlite3.connect(path)) as database:
        database.executescript("DROP TABLE usage; DROP TABLE footprints; DROP TABLE contexts; PRAGMA user_version=5")
    with closing(Store.open(path)) as store:
        assert store.job(ended(1).id) is not None
        assert store.usage.since(0.0, 10) == []
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_a_row_that_is_damaged_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    with closing(Store.open(path)) as store:
        store.usage.put("snake-1", [with_usage(1, 7)])
        store.usage.put("snake-2", [with_usage(2, 8)])
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE usage SET row = 'nonsense' WHERE job = 'snake-1'")
        database.commit()
    with closing(Store.open(path)) as store:
        assert [row.device_mib for row in store.usage.since(0.0, 10)] == [8]


def test_replicas_of_unequal_time_are_added_up_each_by_its_own() -> None:
    long, short = (Usage(attempt=0, seconds=each, device_mib=mib) for each, mib in ((36_000.0, 500), (60.0, 900)))
    (row,) = roles_used(job([long], [short]))
    assert (row.run_s, row.seconds) == (36_060.0, 36_000.0)
    assert row.given_mib_s == 1000 * 36_000 + 1001 * 60
    assert row.used_mib_s == 500 * 36_000 + 900 * 60
    (unknown,) = roles_used(job([Usage(attempt=0, seconds=60.0)]))
    assert (unknown.used_mib_s, unknown.given_mib_s) == (None, 0.0)


def test_what_was_given_is_what_each_attempt_had() -> None:
    first = Usage(attempt=0, seconds=100.0, share_mib=300, device_mib=300)
    second = Usage(attempt=1, seconds=10.0, share_mib=556, device_mib=400)
    (row,) = roles_used(job([first, second]))
    assert (row.given_mib_s, row.used_mib_s) == (300 * 100 + 556 * 10, 300 * 100 + 400 * 10)


def test_members_that_run_again_are_not_counted_twice(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "gpusched.db")) as store:
        member = replace(ended(1), id="snake-1[3]", array="snake-1", state=JobState.FAILED)
        assert member.last is not None
        usage = (Usage(attempt=0, seconds=60.0, device_mib=9),)
        replicas = tuple(replace(each, usage=usage) for each in member.last.replicas)
        store.add(replace(member, last=replace(member.last, replicas=replicas)))
        assert store.usage.of_array("snake-1", 10)
        store.forget_members("snake-1", (JobState.FAILED,))
        assert not store.usage.since(0.0, 10)
