"""What a person types beside a workload: numbers, amounts and devices, each checked and each "no" with a way out."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.errors import UsageError
from gpusched.model.device import Device
from gpusched.model.workload import Memory, Workload
from gpusched.model.workload_file import parse_workload
from gpusched.planner import Rules, counted_role, plan, request_for, select_devices
from tests.planner.building import host, limits

COMMAND = ["{python}", "-c", "pass"]
SNAKE: dict[str, dict[str, object]] = {
    "learner": {"command": COMMAND, "memory": {"min": "2GiB", "share": 0.75}},
    "actor": {"command": COMMAND, "count": 32, "memory": {"min": "512MiB"}},
}


def workload(roles: dict[str, dict[str, object]], leader: str | None = None) -> Workload:
    job = {} if leader is None else {"leader": leader}
    return parse_workload({"name": "test", "roles": roles, "job": job}, Path("workload.toml"))


def test_a_workload_is_asked_for_as_it_is_written() -> None:
    learner, actor = request_for(workload(SNAKE)).roles
    assert (learner.count, learner.memory) == (1, Memory(min_mib=2048, share=7500))
    assert (actor.count, actor.memory) == (32, Memory(min_mib=512))


def test_procs_counts_actors_and_the_learner_comes_on_top() -> None:
    assert [role.count for role in request_for(workload(SNAKE), procs="5").roles] == [1, 5]


def test_a_learner_may_be_alone_where_that_is_allowed() -> None:
    assert [role.count for role in request_for(workload(SNAKE), procs="0", least_procs=0).roles] == [1, 0]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "1e3", "NaN", "inf", "", "100001", "9" * 30, "٣x", "many"])
def test_bad_numbers_of_processes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--procs") as raised:
        request_for(workload(SNAKE), procs=text)
    assert raised.value.hint == "give a whole number from 1 to 100000, or max"


@pytest.mark.parametrize("text", ["0", "0MiB", "-1GiB", "NaN", "12 XiB", "2", "1e3MiB", "999999TiB", "", "infGiB"])
@pytest.mark.parametrize("option", ["learner_memory", "actor_memory"])
def test_bad_amounts_are_refused(text: str, option: str) -> None:
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')}"):
        request_for(
            workload(SNAKE),
            learner_memory=text if option == "learner_memory" else None,
            actor_memory=text if option == "actor_memory" else None,
        )


def test_an_amount_for_the_learner_replaces_its_share() -> None:
    (learner, _) = request_for(workload(SNAKE), learner_memory="4GiB").roles
    assert learner.memory == Memory(min_mib=4096, share=0)
    found = plan(request_for(workload(SNAKE), learner_memory="4GiB"), host(*[16_160] * 4), (), Rules())
    assert limits(found, "learner")[0] >= 4096
    assert limits(found, "actor")[0] > 1133, "what the learner no longer asks for goes to the actors"


def test_an_amount_for_the_actors_replaces_their_minimum() -> None:
    (_, actor) = request_for(workload(SNAKE), actor_memory="1GiB").roles
    assert actor.memory == Memory(min_mib=1024)


def test_the_counted_role_is_the_actor_or_the_only_one_that_does_not_lead() -> None:
    role: dict[str, object] = {"command": COMMAND}
    assert counted_role(workload(SNAKE)) == "actor"
    assert counted_role(workload({"boss": role, "player": role}, leader="boss")) == "player"
    assert counted_role(workload({"trainer": role})) == "trainer"
    with pytest.raises(UsageError, match="its roles are boss, player, judge, led by boss"):
        counted_role(workload({"boss": role, "player": role, "judge": role}, leader="boss"))


def test_a_role_that_leads_alone_has_no_number_to_change() -> None:
    alone = workload({"learner": {"command": COMMAND, "devices": 2}}, leader="learner")
    assert request_for(alone).roles[0].devices == 2
    with pytest.raises(UsageError, match="has no actors: its one role, learner, leads it") as raised:
        request_for(alone, procs="4")
    assert raised.value.hint == "leave out what is for actors: --procs, --actor-memory, --listen"


def test_an_amount_for_a_learner_that_has_whole_devices_is_refused() -> None:
    alone = workload({"learner": {"command": COMMAND, "devices": 2}}, leader="learner")
    with pytest.raises(UsageError, match="--learner-memory: learner has whole devices"):
        request_for(alone, learner_memory="1GiB")


def test_an_amount_for_a_learner_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a role `learner` or a leader"):
        request_for(workload({"actor": {"command": COMMAND}}), learner_memory="1GiB")


def test_the_leader_stands_for_a_learner_of_another_name() -> None:
    boss = {"boss": SNAKE["learner"], "actor": SNAKE["actor"]}
    roles = request_for(workload(boss, leader="boss"), learner_memory="3GiB").roles
    assert roles[0].memory == Memory(min_mib=3072, share=0)


def chosen(gpus: str | None, exclude: str | None = None) -> set[str]:
    inventory = host(100, 100, 100)
    rows = [
        replace(device, uuid=uuid)
        for device, uuid in zip(inventory.devices, ("GPU-aa1", "GPU-ab2", "GPU-c"), strict=True)
    ]
    rows[2] = replace(rows[2], mig_mode=True)
    rows += [Device(index=2, mig_index=i, uuid=f"MIG-{i}", name="1g", memory_total_mib=10) for i in range(2)]
    return set(select_devices(replace(inventory, devices=tuple(rows)), gpus, exclude) or ())


@pytest.mark.parametrize(
    ("gpus", "exclude", "expected"),
    [
        ("0,1", None, {"GPU-aa1", "GPU-ab2"}),
        (" 0 , 0 ", None, {"GPU-aa1"}),
        ("2:1", None, {"MIG-1"}),
        ("2", None, {"GPU-c", "MIG-0", "MIG-1"}),
        ("GPU-ab", None, {"GPU-ab2"}),
        (None, "0,2", {"GPU-ab2"}),
        ("0,1", "1", {"GPU-aa1"}),
        (None, None, set()),
    ],
)
def test_devices_are_chosen_by_index_label_or_start_of_uuid(
    gpus: str | None, exclude: str | None, expected: set[str]
) -> None:
    assert chosen(gpus, exclude) == expected


@pytest.mark.parametrize(
    ("gpus", "exclude", "says"),
    [
        ("7", None, "--gpus: there is no device '7'"),
        ("2:5", None, "--gpus: there is no device '2:5'"),
        ("0,", None, "--gpus: there is no device ''"),
        (None, "x", "--exclude-gpus: there is no device 'x'"),
        ("GPU-a", None, r"'GPU-a' is the start of more than one uuid \(GPUs 0, 1\)"),
        ("0", "0", "leave no device"),
    ],
)
def test_a_device_that_is_not_there_is_refused(gpus: str | None, exclude: str | None, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        chosen(gpus, exclude)


def test_the_refusal_lists_what_there_is() -> None:
    with pytest.raises(UsageError) as raised:
        select_devices(host(16_160, 512), "9", None)
    assert raised.value.hint == "there is: 0 (card, 15.8 GiB), 1 (card, 512 MiB)"


def test_only_the_chosen_devices_are_planned() -> None:
    inventory = host(100, 100, 100)
    only = select_devices(inventory, None, "1")
    found = plan(
        request_for(workload({"actor": {"command": COMMAND, "memory": {"min": "2MiB"}}}), procs="4"),
        inventory,
        (),
        Rules(only=only, context_mib=1),
    )
    assert [device.index for device in found.devices] == [0, 2]
    assert list(found.counts) == [2, 2]
