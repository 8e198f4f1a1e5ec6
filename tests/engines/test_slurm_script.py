"""The batch script, and what Slurm's lines mean."""

import subprocess
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

import gpusched
from gpusched.engines.cluster.node_tasks import steps_workload
from gpusched.engines.slurm.script import (
    HeadOrder,
    batch_script,
    has_to_make_room,
    inside,
    is_nearly_over,
    is_there,
    outside,
    partition_of,
    places,
    read_gpus,
    seen,
)
from tests.engines.groups import a_group


@pytest.mark.parametrize(
    ("line", "state", "words"),
    [
        ("12|PENDING|Resources||", "queued", "Slurm job 12 is PENDING (Resources)"),
        ("12|RUNNING|None|n[1-3]|n1", "running", "Slurm job 12 is RUNNING on n[1-3]"),
        ("12|COMPLETING|None|n1|n1", "running", "Slurm job 12 is COMPLETING on n1"),
        ("12|CANCELLED|None|n1|n1", "cancelled", "Slurm job 12 is CANCELLED"),
        ("12|TIMEOUT|TimeLimit|n1|n1", "failed", "Slurm job 12 is TIMEOUT (TimeLimit)"),
        ("12|COMPLETED|None|n1|n1", "succeeded", "Slurm job 12 is COMPLETED"),
        ("12|A_NEW_ONE|None|n1|n1", "running", "Slurm job 12 is A_NEW_ONE on n1"),
    ],
)
def test_a_job_is_what_squeue_says(line: str, state: str, words: str) -> None:
    told = seen(line)
    assert (told.state, told.message) == (state, words)


def test_where_a_job_runs_is_told_while_it_runs() -> None:
    assert places("12|RUNNING|None|n[2-3]|n1") == ("n[2-3]", "n1")
    assert places("12|PENDING|Resources||n/a") == ("", "")


@pytest.mark.parametrize(
    ("lines", "gpus"),
    [
        (["(null)"], 0),
        (["gpu:2"], 2),
        (["gpu:v100:4(S:0-1)", "(null)"], 4),
        (["gpu:v100:2,shard:v100:64", "gpu:a100:8"], 2),
        (["gpu:a:1,gpu:b:2"], 3),
        ([], 0),
    ],
)
def test_the_gpus_of_a_node_are_read_from_its_generic_resources(lines: list[str], gpus: int) -> None:
    assert read_gpus(lines) == gpus


def test_the_batch_script_hands_the_whole_order_to_the_program_of_the_first_node() -> None:
    order = HeadOrder(group=a_group(cwd="/tmp"), job="toy-1", directory="/x/it's")
    script = batch_script(order, "gpusched-1", "/x/slurm.log")
    ran = script.replace(f"exec {order.group.python} -P -m gpusched.engines.slurm.batch", "exec cat")
    told = subprocess.run(["bash", "-c", ran], capture_output=True, check=True).stdout
    assert msgspec.json.decode(told, type=HeadOrder) == order
    assert "#SBATCH --no-kill\n" in script
    assert "#SBATCH --gres" not in script


def test_what_lies_in_the_directory_of_the_job_is_not_imported_unless_gpusched_itself_lies_there() -> None:
    elsewhere, source = a_group(cwd="/tmp"), a_group(cwd=str(Path(gpusched.__file__).parents[1]))
    assert inside(elsewhere, "7", "n2")[-3:] == ["-P", "-m", "gpusched.engines.cluster.node"]
    assert inside(source, "7", "n2")[-3:] == [source.python, "-m", "gpusched.engines.cluster.node"]
    assert steps_workload(elsewhere, "toy-1", "m").roles[0].command == ("{python}", "-P", "-m", "m")
    assert " -P -m gpusched." in batch_script(HeadOrder(group=elsewhere), "a", "b")


def test_what_the_site_wants_is_said_in_the_script_and_of_further_jobs_but_not_within_the_job() -> None:
    group = a_group(site=("--partition=gpu", "--comment=two words"), gpus=2)
    script = batch_script(HeadOrder(group=group), "a", "b")
    assert "#SBATCH --gres=gpu:2\n" in script
    assert '#SBATCH "--comment=two words"\n' in script
    assert "--partition=gpu" in outside(group, "7")
    assert "--partition=gpu" not in inside(group, "7", "n2")


def test_another_node_is_asked_for_with_what_srun_knows_of_the_sites_words() -> None:
    site = ("--partition=gpu", "-Alab", "--time=2:00:00", "--begin=now+1hour", "--dependency=afterok:1", "--parsable")
    assert outside(a_group(site=site), "7")[2:5] == ["--partition=gpu", "-Alab", "--time=2:00:00"]
    assert not {"--begin=now+1hour", "--dependency=afterok:1", "--parsable"} & set(outside(a_group(site=site), "7"))


def test_the_gpus_of_the_partition_that_was_asked_for_count() -> None:
    assert partition_of(("--account=lab", "--partition=gpu,debug", "-pbig")) == ["--partition=gpu,debug", "-pbig"]


def test_a_job_that_is_cancelled_has_its_place_no_longer() -> None:
    assert is_there("12|RUNNING|None|n1|n1")
    assert not is_there("12|COMPLETING|None|n1|n1")
    assert not is_there("12|CANCELLED|None|n1|n1")


def test_why_a_job_is_told_to_end_is_what_scontrol_shows() -> None:
    now = datetime(2026, 11, 22, 18, 0, 0)  # noqa: DTZ001 (Slurm shows local time)
    assert has_to_make_room({"PreemptTime": "2026-11-22T17:59:58"})
    assert not has_to_make_room({"PreemptTime": "None"})
    assert is_nearly_over({"EndTime": "2026-11-22T18:01:30"}, now)
    assert not is_nearly_over({"EndTime": "2026-11-22T19:00:00"}, now)
    assert not is_nearly_over({"EndTime": "Unknown"}, now)
