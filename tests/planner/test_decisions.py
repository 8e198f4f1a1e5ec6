"""What the planner decides, as a table in plain words: hosts small enough that the sums can be done in one's head."""

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.execution.workloads import load_workload
from gpusched.model.device import Inventory
from gpusched.model.plan import Request, RoleRequest
from gpusched.planner import Rules, plan, request_for
from gpusched.planner.policies import policy_and_growth
from gpusched.probe.base import read_inventory
from tests.planner.building import ask, assert_sound, home, host, limits, simple


class Case(NamedTuple):
    says: str
    devices: tuple[int, ...]
    request: Request
    counts: list[int]
    learner: list[int]
    actor: list[int]


CASES = [
    Case(
        "a learner alone takes the whole first device",
        (100, 100),
        ask(learner=(1, 10, 0.5), actor=(0, 10)),
        [1, 0],
        [99],
        [],
    ),
    Case(
        "actors without a learner are spread evenly, lower indices first, and what is left over stays free",
        (100, 100, 100),
        ask(actor=(7, 10)),
        [3, 2, 2],
        [],
        [32] * 7,
    ),
    Case(
        "actors go beside the learner only when that gives the worst one more",
        (100, 100),
        ask(learner=(1, 10, 0.5), actor=(2, 10)),
        [1, 2],
        [99],
        [49, 49],
    ),
    Case(
        "an actor goes beside the learner when it gets more there",
        (100, 100),
        ask(learner=(1, 10, 0.5), actor=(3, 10)),
        [2, 2],
        [50],
        [48] * 3,
    ),
    Case(
        "the learner goes where the fewest processes are beside it",
        (100, 40),
        ask(learner=(1, 10, 0.5), actor=(4, 10)),
        [4, 1],
        [39],
        [24] * 4,
    ),
    Case(
        "the share is of the device's total, rounded up to whole MiB",
        (101,),
        ask(learner=(1, 10, 0.5), actor=(1, 10)),
        [2],
        [51],
        [48],
    ),
    Case(
        "the learner gives way to its minimum when the actors' minima do not fit beside its share",
        (100,),
        ask(learner=(1, 10, 0.75), actor=(4, 15)),
        [5],
        [11],
        [21] * 4,
    ),
    Case(
        "the minimum counts where it is more than the share",
        (100, 100),
        ask(learner=(1, 80, 0.5), actor=(5, 10)),
        [1, 5],
        [99],
        [19] * 5,
    ),
    Case(
        "two learners go to two devices",
        (100, 100, 100),
        ask(learner=(2, 10, 0.4), actor=(3, 10)),
        [2, 2, 1],
        [40, 40],
        [58] * 3,
    ),
    Case(
        "two learners on one device divide what is left, the odd MiB to the lower rank",
        (100,),
        ask(learner=(2, 10, 0.2), actor=(1, 10)),
        [3],
        [20, 20],
        [57],
    ),
    Case(
        "the odd MiB that is left goes to the lower rank",
        (101,),
        ask(learner=(2, 10, 0.2), actor=(0, 10)),
        [2],
        [50, 49],
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_decides(case: Case) -> None:
    found = plan(case.request, host(*case.devices), (), Rules(context_mib=1, headroom=0))
    assert_sound(found)
    assert list(found.counts) == case.counts
    assert limits(found, "learner") == case.learner
    assert limits(found, "actor") == case.actor


def test_home_case_is_3_10_10_10() -> None:
    inventory, _ = read_inventory("p3.8xlarge")
    found = plan(ask(learner=(1, 2048, 0.75), actor=(32, 512)), inventory)
    assert_sound(found)
    assert list(found.counts) == [3, 10, 10, 10]
    assert limits(found, "actor") == [1133] * 32
    assert limits(found, "learner") == [12221]
    assert found.replicas[0].fraction == 7562
    assert [device.plannable_mib for device in found.devices] == [15837] * 4
    assert [device.planned_mib for device in found.devices] == [15837, 15830, 15830, 15830]
    assert "actors: 15837 / 10 = 1583 MiB each on GPU 1, 2 and 3, 1133 MiB limit + 450 MiB context" in found.why
    assert "no actor can have more: with 1134 MiB each only 29 of 32 actors would fit" in found.why


def test_ranks_run_in_the_order_of_devices() -> None:
    found = simple(100, 100, learner=(1, 10, 0.5), actor=(3, 10))
    assert [device.replicas for device in found.devices] == [("learner.0", "actor.0"), ("actor.1", "actor.2")]


def test_roles_beyond_learner_and_actor_keep_their_minima() -> None:
    found = simple(100, 100, trainer=(1, 10, 0.5), player=(4, 5), judge=(1, 40), scribe=(2, 3))
    assert_sound(found)
    assert limits(found, "judge") == [40]
    assert limits(found, "player")[0] == limits(found, "scribe")[0]


def test_a_role_without_memory_gets_no_device() -> None:
    roles = (*ask(actor=(2, 10)).roles, RoleRequest(name="logger", count=1, memory=None))
    found = plan(Request(workload="test", roles=roles), host(100), (), Rules(headroom=0, context_mib=1))
    logger = found.replicas[-1]
    assert (logger.name, logger.device_uuid, logger.share_mib) == ("logger.0", None, 0)
    assert logger.cpus == found.inventory.cpus
    assert list(found.counts) == [2]


def test_balanced_uses_all_devices_pack_as_few_as_possible() -> None:
    actors = (4, 10)
    assert list(simple(50, 50, 50, 50, learner=(1, 10, 0.3), actor=actors).counts) == [2, 1, 1, 1]
    assert list(simple(50, 50, 50, 50, policy="pack", learner=(1, 10, 0.3), actor=actors).counts) == [3, 2, 0, 0]


def test_pack_leaves_the_emptiest_devices_free() -> None:
    found = simple(40, 100, 70, policy="pack", learner=(1, 10, 0.5), actor=(3, 10))
    assert list(found.counts) == [0, 0, 4]
    assert list(simple(40, 100, 70, policy="pack", actor=(1, 10)).counts) == [1, 0, 0]
    assert list(simple(40, 100, 70, policy="pack", actor=(1, 50)).counts) == [0, 0, 1]


def test_pack_takes_a_device_in_use_before_one_that_is_whole() -> None:
    found = plan(ask(actor=(1, 10)), host(80, 200, used=[0, 110]), (), Rules(policy="pack", headroom=0, context_mib=1))
    assert list(found.counts) == [0, 1]


def test_spread_names_what_it_costs() -> None:
    assert simple(100, 100, 100, policy="spread", actor=(2, 10)).why[0] == (
        "policy spread: at most 1 on a device; 2 of 3 devices are used, and policy pack would use 1"
    )
    assert simple(20, 20, policy="spread", actor=(2, 15)).why[0] == "policy spread: at most 1 on a device"


def test_who_does_not_grow_gets_the_minimum_and_the_reason_names_it() -> None:
    found = simple(100, 100, grow=False, policy="pack", learner=(1, 10, 0.5), actor=(3, 5))
    assert (limits(found, "learner"), limits(found, "actor"), list(found.counts)) == ([10], [5, 5, 5], [4, 0])
    assert found.why == (
        "policy pack: 1 of 2 devices is enough, the fullest with room",
        "learner: 11 MiB, 10 MiB limit + 1 MiB context: the minimum, as this job does not grow",
        "actors: 6 MiB each, 5 MiB limit + 1 MiB context: the minimum, as this job does not grow",
    )


def test_nobody_gets_more_than_the_maximum_and_the_reason_names_it() -> None:
    found = simple(100, 100, learner=(1, 10, 0.5, 60), actor=(2, 5, None, 20))
    assert (limits(found, "learner"), limits(found, "actor")) == ([60], [20, 20])
    assert found.why == (
        "GPU 0: learner.0 takes 60 MiB (60 % of 100, its maximum), nothing is beside it",
        "actors: 21 MiB each, 20 MiB limit + 1 MiB context: the maximum",
    )


def test_what_one_role_may_not_have_goes_to_the_next_with_a_share() -> None:
    found = simple(100, trainer=(1, 10, 0.2, 30), judge=(1, 10, 0.2))
    assert (limits(found, "trainer"), limits(found, "judge")) == ([30], [68])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ((None, None), ("balanced", True)),
        ((None, False), ("pack", False)),
        (("pack", None), ("pack", False)),
        (("pack", True), ("pack", True)),
        (("balanced", False), ("balanced", False)),
        (("spread", None), ("spread", True)),
    ],
)
def test_what_is_packed_does_not_grow_and_what_does_not_grow_is_packed(
    typed: tuple[str | None, bool | None], meant: tuple[str, bool]
) -> None:
    assert policy_and_growth(*typed) == meant


def test_spread_lowers_the_fullest_device_even_if_actors_get_less() -> None:
    roomy = simple(1000, 60, 60, actor=(6, 10))
    assert max(roomy.counts) == 6
    spread = simple(1000, 60, 60, policy="spread", actor=(6, 10))
    assert list(spread.counts) == [2, 2, 2]
    assert limits(spread, "actor")[0] < limits(roomy, "actor")[0]


def test_exclusive_puts_one_replica_on_a_device() -> None:
    found = simple(100, 100, 50, policy="exclusive", learner=(1, 10, 0.5), actor=(2, 10))
    assert list(found.counts) == [1, 1, 1]
    assert home(found, "learner.0") == 2, "the smallest device costs the actors least"


def test_unknown_policy_lists_those_that_are() -> None:
    with pytest.raises(UsageError, match="balanced, pack, spread, exclusive"):
        simple(100, policy="fast", actor=(1, 1))


def test_max_is_the_most_that_fit_with_everybody_at_the_minimum() -> None:
    inventory, _ = read_inventory("p3.8xlarge")
    found = plan(ask(learner=(1, 2048, 0.75), actor=(1, 512)), inventory, maximise="actor")
    assert len(limits(found, "actor")) == 13 + 3 * 16, (
        "(15837 - 2498) // 962 beside the learner, 15837 // 962 elsewhere"
    )
    assert found.why[0].startswith("61 actors: the most that fit")


def test_max_without_a_gpu_is_one_process_a_cpu_and_at_least_one() -> None:
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=tuple(range(8)))
    request = ask(learner=(1, 2048, 0.75), actor=(1, 512))
    assert len(limits(plan(request, inventory, maximise="actor"), "actor")) == 7
    single = replace(inventory, cpus=(0,))
    found = plan(request, single, maximise="actor")
    assert len(limits(found, "actor")) == 1
    assert any("one process for each CPU" in line for line in found.why)


def test_without_a_gpu_replicas_share_the_cpus() -> None:
    inventory = Inventory(host="here", source="cpu", devices=(), cpus=tuple(range(8)))
    found = plan(ask(learner=(1, 2048, 0.75), actor=(3, 512)), inventory)
    assert found.counts == ()
    assert {(replica.device_uuid, replica.share_mib, replica.threads) for replica in found.replicas} == {(None, 0, 2)}
    assert any("has no GPU" in line for line in found.why)


def test_replicas_get_the_cpus_near_their_device_and_their_part_of_them() -> None:
    near = ((0, 1, 2, 3), (4, 5, 6, 7, 99))
    inventory = host(100, 100, cpus=8)
    devices = tuple(replace(device, cpus=cpus) for device, cpus in zip(inventory.devices, near, strict=True))
    found = plan(ask(actor=(5, 1)), replace(inventory, devices=devices), (), Rules(context_mib=1, headroom=0))
    assert [(replica.cpus, replica.threads) for replica in found.replicas] == [
        *[((0, 1, 2, 3), 1)] * 3,
        *[((4, 5, 6, 7), 2)] * 2,
    ]


def test_a_role_may_say_its_threads() -> None:
    request = ask(actor=(2, 1))
    request = replace(request, roles=(replace(request.roles[0], threads=5),))
    assert {replica.threads for replica in plan(request, host(4000)).replicas} == {5}


@pytest.mark.parametrize("devices", [(), (4000,)])
def test_replicas_that_leave_their_work_to_others_leave_them_the_cpus_too(devices: tuple[int, ...]) -> None:
    asked = ask(learner=(1, 2000, 0.75), actor=(3, 512))
    low_cpu = replace(asked.roles[1], memory=None, low_cpu=True)
    inventory = replace(host(*devices, cpus=8), source="nvml" if devices else "cpu")
    found = plan(replace(asked, roles=(asked.roles[0], low_cpu)), inventory)
    assert [replica.threads for replica in found.replicas] == [8, 1, 1, 1]
    assert {replica.cpus for replica in found.replicas} == {tuple(range(8))}


@pytest.mark.parametrize(("cpus", "threads"), [(1, [1, 1, 1]), (2, [2, 1, 1]), (9, [3, 3, 3])])
@pytest.mark.parametrize("devices", [(), (4000,)])
def test_a_role_gets_its_least_threads_if_there_are_so_many_cpus(
    devices: tuple[int, ...], cpus: int, threads: list[int]
) -> None:
    asked = ask(learner=(1, 1000), actor=(2, 1000))
    asked = replace(asked, roles=(replace(asked.roles[0], least_threads=2), asked.roles[1]))
    inventory = replace(host(*devices, cpus=cpus), source="nvml" if devices else "cpu")
    found = plan(asked, inventory, (), Rules(context_mib=1, headroom=0))
    assert [replica.threads for replica in found.replicas] == threads


def test_a_request_for_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no process to place"):
        plan(ask(actor=(0, 1)), host(100))


def test_more_processes_than_cpus_is_a_warning() -> None:
    found = plan(ask(actor=(5, 1)), host(10_000, cpus=4))
    assert "5 processes share 4 CPUs and will take turns; fewer: --procs" in found.warnings


@pytest.mark.parametrize("policy", ["balanced", "pack", "spread", "exclusive"])
def test_roles_without_memory_need_no_device_that_works(policy: str) -> None:
    request = Request(workload="test", roles=(RoleRequest(name="log", count=2, memory=None),))
    inventory = host(100)
    lost = replace(inventory, devices=(replace(inventory.devices[0], health="lost"),))
    for there in (inventory, lost):
        found = plan(request, there, (), Rules(policy=policy))
        assert [replica.device_uuid for replica in found.replicas] == [None, None]
        assert found.why == ("2 logs: no memory is asked for, so no device is given",)


@pytest.mark.parametrize("learners", [0, 1])
def test_max_of_a_role_without_memory_is_one_process_a_cpu_also_beside_devices(learners: int) -> None:
    (learner,) = ask(learner=(learners, 10, 0.5)).roles
    request = Request(workload="test", roles=(learner, RoleRequest(name="actor", count=1, memory=None)))
    found = plan(request, host(100, cpus=6), (), Rules(context_mib=1, headroom=0), "actor")
    assert len(found.replicas) == 6
    assert found.why[0].startswith(f"{6 - learners} actors: one process for each CPU")


def test_one_actor_is_spoken_of_as_one() -> None:
    assert simple(100, actor=(1, 10)).why == (
        "actor: 100 / 1 = 100 MiB on GPU 0, 99 MiB limit + 1 MiB context",
        "no actor can have more: with 100 MiB each none of 1 actor would fit",
    )


@pytest.mark.parametrize(("cpus", "count"), [(2, 2), (1, 1), (64, 32)])
def test_without_a_gpu_there_are_at_most_as_many_usual_actors_as_cpus(cpus: int, count: int) -> None:
    workload = load_workload("snake")
    found = plan(request_for(workload), host(cpus=cpus))
    assert sum(replica.role == "actor" for replica in found.replicas) == count
    assert any("of the usual 32 actors" in line for line in found.warnings) == (count < 32)
    for typed in (request_for(workload, "32"), request_for(workload, fixed=True)):
        assert len(plan(typed, host(cpus=cpus)).replicas) == 33
    assert len(plan(request_for(workload), host(16_160, 16_160, 16_160, 16_160, cpus=cpus)).replicas) == 33


def test_a_role_that_never_had_a_device_keeps_its_number_without_a_gpu() -> None:
    assert len(plan(request_for(load_workload("averaging")), host(cpus=1)).replicas) == 5
