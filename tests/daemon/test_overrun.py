"""Who is warned, who is started anew and when, and who is left alone."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched.daemon.overrun import Overruns
from gpusched.model.device import Device, DeviceProcess, Inventory
from gpusched.model.lease import Lease
from gpusched.model.status import JobState, JobStatus, ReplicaState, ReplicaStatus

TOTAL, SHARE, GRACE_S = 16000, 1500, 10.0


def device(uses: Sequence[int | None], *, used: int | None = None, uuid: str = "GPU-1") -> Device:
    """One device on which process 100+n uses the nth amount."""
    processes = tuple(DeviceProcess(pid=100 + number, memory_mib=use) for number, use in enumerate(uses))
    known = sum(use or 0 for use in uses) if used is None else used
    return Device(index=1, uuid=uuid, name="V100", memory_total_mib=TOTAL, memory_used_mib=known, processes=processes)


def host(*devices: Device, **fields: Any) -> Inventory:
    return Inventory(**({"host": "h", "source": "nvml", "devices": devices, "cpus": (0,)} | fields))


def leases(count: int, share: int = SHARE) -> tuple[Lease, ...]:
    return tuple(
        Lease(device_uuid="GPU-1", share_mib=share, job="snake-1", replica=f"actor.{n}", pid=100 + n, run_dir="/j")
        for n in range(count)
    )


def jobs(count: int, **fields: Any) -> tuple[JobStatus, ...]:
    replicas = tuple(
        ReplicaStatus(name=f"actor.{n}", role="actor", pid=100 + n, state=ReplicaState.RUNNING) for n in range(count)
    )
    return (
        JobStatus(
            id="snake-1",
            workload="snake",
            state=JobState.RUNNING,
            counts=(),
            replicas=fields.pop("replicas", replicas),
            run_dir="/j",
            **fields,
        ),
    )


def told(overruns: Overruns, uses: Sequence[int | None], now: float, **fields: Any) -> list[tuple[str, str, bool]]:
    orders = overruns.check(host(device(uses, **fields)), leases(len(uses)), jobs(len(uses)), now)
    assert all(job == "snake-1" for job, _ in orders)
    return [(order.replica, order.message, order.restart) for _, order in orders]


def test_it_is_warned_at_once_in_numbers_and_started_anew_after_the_grace_and_only_once() -> None:
    overruns = Overruns(GRACE_S, "stop")
    assert told(overruns, [1500, 2100], 0) == [
        ("actor.1", "uses 2100 of its 1500 MiB on GPU 1; it may for 10 s", False)
    ]
    assert told(overruns, [1500, 2100], 9.9) == []
    assert told(overruns, [1500, 2200], 10) == [("actor.1", "used 2200 of its 1500 MiB on GPU 1 for 10 s", True)]
    assert told(overruns, [1500, 2200], 11) == told(overruns, [1500, 900], 12) == []


def test_the_warning_ends_when_it_is_within_its_share_again_and_the_grace_begins_anew() -> None:
    overruns = Overruns(GRACE_S, "stop")
    assert len(told(overruns, [100, 2100], 0)) == 1
    assert told(overruns, [100, 1500], 9) == [("actor.1", "", False)]
    assert told(overruns, [100, 1500], 10) == []
    assert told(overruns, [100, 2100], 11)[0][2] is False
    assert told(overruns, [100, 2100], 20) == []
    assert told(overruns, [100, 2100], 21)[0][2] is True


def with_contexts(overruns: Overruns, use: int, now: float, **fields: Any) -> list[tuple[str, bool]]:
    """Check a replica whose share of 1500 MiB is a limit of 1050 and a context of 450, beside one that does little."""
    replicas = tuple(
        ReplicaStatus(
            name=f"actor.{n}",
            role="actor",
            pid=100 + n,
            state=ReplicaState.RUNNING,
            device_uuid="GPU-1",
            limit_mib=1050,
            share_mib=SHARE,
        )
        for n in range(2)
    )
    orders = overruns.check(host(device([100, use], **fields)), leases(2), jobs(2, replicas=replicas), now)
    return [(order.message, order.restart) for _, order in orders]


def test_a_context_that_is_larger_than_planned_is_told_once_and_starts_nobody_anew() -> None:
    overruns = Overruns(GRACE_S, "stop")
    told = "uses 1660 of its 1500 MiB on GPU 1: its context takes more than the 450 MiB that were planned for it"
    assert with_contexts(overruns, 1660, 0) == [(told, False)]
    for moment in (5, 10, 1000):
        assert with_contexts(overruns, 1950, moment) == []
    assert with_contexts(overruns, 1500, 1001) == [("", False)]
    assert with_contexts(overruns, 1500, 1002) == []
    assert len(with_contexts(overruns, 1660, 1003)) == 1


def test_more_than_contexts_explain_has_its_whole_grace_and_is_started_anew() -> None:
    overruns = Overruns(GRACE_S, "stop")
    assert with_contexts(overruns, 1660, 0)[0][1] is False
    assert with_contexts(overruns, 1951, 100) == [("uses 1951 of its 1500 MiB on GPU 1; it may for 10 s", False)]
    assert with_contexts(overruns, 1951, 109) == []
    assert with_contexts(overruns, 1951, 110) == [("used 1951 of its 1500 MiB on GPU 1 for 10 s", True)]


def test_a_larger_context_by_which_neighbours_would_run_out_cuts_the_grace_short_too() -> None:
    overruns = Overruns(GRACE_S, "stop")
    assert with_contexts(overruns, 1660, 0, used=TOTAL - 400)[0][1] is True


def test_the_policy_warn_starts_nobody_anew_not_even_in_danger() -> None:
    overruns = Overruns(GRACE_S, "warn")
    assert told(overruns, [100, 2100], 0) == [("actor.1", "uses 2100 of its 1500 MiB on GPU 1", False)]
    assert told(overruns, [100, 2100], 100, used=TOTAL) == []


def test_all_processes_of_a_replica_count_together() -> None:
    own = (*leases(2), Lease(device_uuid="GPU-1", share_mib=0, job="snake-1", replica="actor.1", pid=102, run_dir="/j"))
    orders = Overruns(GRACE_S, "stop").check(host(device([100, 800, 800])), own, jobs(2), 0)
    assert [(order.replica, order.pid) for _, order in orders] == [("actor.1", 101)]


@pytest.mark.parametrize("uses", [[100, None], [100, 2100, None]])
def test_where_an_amount_is_not_told_there_is_no_verdict(uses: list[int | None]) -> None:
    own = (*leases(2), Lease(device_uuid="GPU-1", share_mib=0, job="snake-1", replica="actor.1", pid=102, run_dir="/j"))
    overruns = Overruns(GRACE_S, "stop")
    assert not overruns.check(host(device(uses)), own, jobs(2), 0)
    assert not overruns.check(host(device(uses)), own, jobs(2), 100)


def test_a_device_that_does_not_answer_takes_no_warning_back() -> None:
    overruns = Overruns(GRACE_S, "stop")
    assert len(told(overruns, [100, 2100], 0)) == 1
    silent = Device(index=1, uuid="GPU-1", name="V100", health="error")
    assert overruns.check(host(silent), leases(2), jobs(2), 5) == []
    assert told(overruns, [100, 2100], 10)[0][2] is True


def test_the_grace_is_cut_short_for_the_worst_alone_when_neighbours_would_run_out() -> None:
    overruns = Overruns(GRACE_S, "stop")
    (worst, second) = told(overruns, [2000, 2600, 100], 0, used=TOTAL - 400)
    assert worst == (
        "actor.1",
        "used 2600 of its 1500 MiB on GPU 1, and its neighbours would have run out",
        True,
    )
    assert second[0::2] == ("actor.0", False)
    assert told(overruns, [2000, 2600, 100], 1, used=TOTAL - 400) == []


def test_little_free_memory_is_no_danger_when_the_neighbours_have_all_that_is_theirs() -> None:
    assert told(Overruns(GRACE_S, "stop"), [1500, 2600], 0, used=TOTAL - 400)[0][2] is False


def test_a_replica_that_has_the_device_to_itself_is_only_warned() -> None:
    overruns = Overruns(GRACE_S, "stop")
    for now, expected in ((0, 1), (100, 0)):
        orders = overruns.check(host(device([15900])), leases(1, share=15600), jobs(1), now)
        assert [order.restart for _, order in orders] == [False] * expected


def test_a_new_run_of_the_replica_has_its_own_grace() -> None:
    overruns = Overruns(GRACE_S, "stop")
    told(overruns, [100, 2100], 0)
    assert told(overruns, [100, 2100], 10)[0][2] is True
    again = tuple(msgspec.structs.replace(one, pid=one.pid + 1) for one in jobs(2)[0].replicas if one.pid is not None)
    lease = tuple(msgspec.structs.replace(one, pid=one.pid + 1) for one in leases(2) if one.pid is not None)
    orders = overruns.check(host(device([0, 100, 2100])), lease, jobs(2, replicas=again), 11)
    assert [(order.pid, order.restart) for _, order in orders] == [(102, False)]


@pytest.mark.parametrize(
    "who",
    [
        {"inventory": {"source": "profile"}},
        {"job": {"simulated": True}},
        {"job": {"replicas": ()}},
        {"lease": {"user": "bob"}},
        {"lease": {"run_dir": "/another/state/directory/j"}},
    ],
)
def test_simulated_ones_ended_ones_and_those_of_others_are_left_alone(who: dict[str, Any]) -> None:
    inventory = host(device([100, 2100]), **who.get("inventory", {}))
    held = tuple(msgspec.structs.replace(lease, **who.get("lease", {})) for lease in leases(2))
    overruns = Overruns(GRACE_S, "stop")
    for now in (0, 100):
        assert overruns.check(inventory, held, jobs(2, **who.get("job", {})), now) == []


moments = st.lists(
    st.tuples(st.floats(0.1, 6), st.lists(st.one_of(st.none(), st.integers(0, 3000)), min_size=3, max_size=3)),
    max_size=25,
)


@given(moments)
def test_nobody_is_started_anew_without_a_grace_over_its_share_and_each_is_told_in_turn(
    story: list[tuple[float, list[int | None]]],
) -> None:
    overruns = Overruns(GRACE_S, "stop")
    now, over_since, warned, ended = 0.0, dict[str, float](), set[str](), set[str]()
    for pause, uses in story:
        now += pause
        for number, use in enumerate(uses):
            name = f"actor.{number}"
            if use is not None and use <= SHARE:
                over_since.pop(name, None)
            elif use is not None:
                over_since.setdefault(name, now)
        for replica, message, restart in told(overruns, uses, now, used=5000):
            use = uses[int(replica[-1])]
            assert use is not None
            assert replica not in ended
            assert (use > SHARE) == bool(message)
            assert (replica in warned) == (restart or not message)
            if restart:
                assert now - over_since[replica] >= GRACE_S
                ended.add(replica)
            warned ^= {replica}
        late = {
            name for name, since in over_since.items() if now - since >= GRACE_S and uses[int(name[-1])] is not None
        }
        assert late <= ended
