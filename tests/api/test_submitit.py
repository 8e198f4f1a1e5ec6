"""submitit with cluster="gpusched", and Hydra's launcher: functions are jobs, and end as submitit's jobs do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import submitit
from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError

import gpusched
from gpusched.api.history import remove
from gpusched.api.sweeping import resume
from gpusched.errors import UsageError
from gpusched.submitit import OWN, GpuschedExecutor, GpuschedJob
from hydra_plugins.gpusched_launcher import GpuschedQueueConf
from tests.cli.command import Command
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.usefixtures("command")


@pytest.fixture(autouse=True)
def _nothing_known_of_other_tests(command: Command) -> Iterator[None]:
    """Let the watcher, of which a process has one, forget the jobs of another state directory."""
    yield
    command.end()
    GpuschedJob.watcher.clear()
    GpuschedJob.watcher._registered.clear()


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    found = submitit.AutoExecutor(tmp_path / "calls" / "%j", cluster="gpusched")
    found.update_parameters(gpus_per_node=0)
    return found


def until_there(path: Path) -> None:
    until(path.exists, f"{path.name} is there")


def held(begun: Path, go: Path) -> Callable[[], int]:
    def hold() -> int:
        begun.touch()
        while not go.exists():
            time.sleep(0.01)
        return 1

    return hold


def test_a_function_is_a_job_with_its_part_of_a_device_its_name_and_its_log(executor: submitit.AutoExecutor) -> None:
    def shown(number: int) -> tuple[int, str, str, int]:
        print("from within")
        inside = submitit.JobEnvironment()
        return number, inside.cluster, inside.job_id, int(os.environ["GPUSCHED_MEMORY_LIMIT_MIB"])

    executor.update_parameters(name="train", timeout_min=5, gpus_per_node=1)
    executor.update_parameters(gpusched_fraction=0.25, gpusched_machine="1x16GiB", gpusched_priority=3)
    job = executor.submit(shown, 7)
    number, cluster, job_id, limit = job.result()
    assert (number, cluster, job_id) == (7, "gpusched", job.job_id)
    assert 3000 < limit < 4096
    status = gpusched.job("train").status()
    assert (status.id, status.time_limit_s, status.priority) == (job.id_in_queue, 300, 3)
    until(lambda: job.watcher.get_state(job.job_id, "force") == "COMPLETED", "its process has ended")
    assert "from within" in job.stdout()
    assert job.submission().args == (7,)


def test_several_at_once_are_members_of_one_array(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(gpusched_at_most=2)
    jobs = executor.map_array(lambda one, two: (submitit.JobEnvironment().job_id, one + two), range(3), range(3))
    (array,) = {job.job_id.rpartition("_")[0] for job in jobs}
    assert [job.result() for job in jobs] == [(f"{array}_{number}", 2 * number) for number in range(3)]
    assert [job.id_in_queue for job in jobs] == [f"{array}[{number}]" for number in range(3)]
    found = gpusched.job(array).wait().array
    assert found is not None
    assert (found.succeeded, found.at_most) == (3, 2)
    with executor.batch():
        later = [executor.submit(abs, -one) for one in (4, 5)]
    assert [job.result() for job in later] == [4, 5]
    assert len({job.job_id.rpartition("_")[0] for job in later}) == 1


def test_an_exception_has_its_traceback_and_a_death_its_reason_and_the_others_go_on(
    executor: submitit.AutoExecutor,
) -> None:
    def fate(which: str) -> str:
        if which == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return str(1 // len(which))

    raised, dead, alive = executor.map_array(fate, ["", "dies", "a"])
    assert alive.result() == "1"
    with pytest.raises(FailedJobError, match="ZeroDivisionError"):
        raised.result()
    with pytest.raises(UncompletedJobError, match="SIGKILL"):
        dead.result()
    assert (dead.state, raised.done()) == ("FAILED", True)
    assert "SIGKILL" in dead.get_info()["Message"]


def test_what_is_over_its_time_limit_is_timed_out(executor: submitit.AutoExecutor) -> None:
    executor.update_parameters(timeout_min=5, gpusched_time_limit="1s", gpusched_grace=0.5)
    job = executor.submit(time.sleep, 600)
    assert "time limit" in str(job.exception())
    assert job.state == "TIMEOUT"


def test_what_runs_and_what_waits_can_be_cancelled_and_what_waits_never_runs(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    go, begun, ran = (tmp_path / name for name in ("go", "begun", "ran"))
    executor.update_parameters(gpusched_at_most=1)
    runs, waits, last = executor.submit_array([held(begun, go), ran.touch, held(tmp_path / "second", go)])
    until_there(begun)
    assert [job.watcher.get_state(job.job_id, "force") for job in (runs, waits)] == ["RUNNING", "PENDING"]
    waits.cancel()
    until(lambda: waits.done(force_check=True), "it is cancelled")
    assert waits.state == "CANCELLED"
    with pytest.raises(UncompletedJobError):
        waits.result()
    runs.cancel()
    until(lambda: runs.done(force_check=True), "it has ended")
    assert runs.state == "CANCELLED"
    go.touch()
    assert last.result() == 1
    assert not ran.exists()
    executor.update_parameters(gpusched_hold=True)
    alone = executor.submit(ran.touch)
    alone.cancel()
    until(lambda: alone.done(force_check=True), "it is cancelled")
    assert alone.state == "CANCELLED"


def test_what_is_stopped_saves_a_checkpoint_from_which_it_goes_on_when_it_is_resumed(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    class Counter:
        def __init__(self, reached: int = 0) -> None:
            self.reached = reached

        def __call__(self, begun: Path) -> int:
            begun.touch()
            while not self.reached:
                time.sleep(0.01)
            return self.reached

        def checkpoint(self, begun: Path) -> DelayedSubmission:
            return DelayedSubmission(type(self)(self.reached + 1), begun)

    begun = [tmp_path / "0", tmp_path / "1"]
    jobs = executor.map_array(Counter(), begun)
    for path in begun:
        until_there(path)
    array = gpusched.job(jobs[0].job_id.rpartition("_")[0])
    array.stop()
    assert array.wait().state == "cancelled"
    assert all(job.done(force_check=True) and not job.paths.result_pickle.exists() for job in jobs)
    resume(array)
    assert array.wait().state == "succeeded"
    assert [job.result() for job in jobs] == [1, 1]


def test_the_daemon_may_be_killed_meanwhile(command: Command, executor: submitit.AutoExecutor, tmp_path: Path) -> None:
    go = tmp_path / "go"
    executor.update_parameters(gpusched_at_most=1)
    jobs = executor.submit_array([held(tmp_path / str(number), go) for number in range(2)])
    until_there(tmp_path / "0")
    os.kill(command.daemon(), signal.SIGKILL)
    go.touch()
    assert [job.result() for job in jobs] == [1, 1]


def test_a_job_that_was_removed_is_over(executor: submitit.AutoExecutor) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    removed = [executor.submit(die), *executor.submit_array([die, die])]
    there = executor.submit(abs, -1)
    for job_id in {job.job_id.partition("_")[0] for job in removed}:
        gpusched.job(job_id).wait()
        remove(job_id)
    assert {job.watcher.get_state(job.job_id, "force") for job in removed} == {"REMOVED"}
    assert all(job.done() for job in removed)
    assert there.result() == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": 2}, "nodes=2"),
        ({"tasks_per_node": 2}, "tasks_per_node=2"),
        ({"gpusched_fraction": 2}, "fraction"),
        ({"gpusched_memory": "6GiB", "gpusched_num_gpus": 1}, "exclude each other"),
        ({"gpusched_at_most": 0}, "at_most"),
        ({"gpusched_at": "never"}, "at"),
    ],
)
def test_wrong_parameters_are_refused_when_they_are_given_and_change_nothing(
    executor: submitit.AutoExecutor, given: dict[str, Any], words: str
) -> None:
    before = dict(executor.parameters)
    with pytest.raises(UsageError, match=words):
        executor.update_parameters(**given)
    assert executor.parameters == before
    with pytest.raises(NameError, match=r"Valid arguments: .*fraction"):
        executor.update_parameters(gpusched_retry=2)
    with pytest.raises(UsageError, match="retry is no parameter"):
        GpuschedExecutor(executor.folder).update_parameters(retry=2)


def test_what_is_not_limited_is_taken_with_a_warning(executor: submitit.AutoExecutor) -> None:
    with pytest.warns(UserWarning, match="limits no cpus_per_task"):
        executor.update_parameters(cpus_per_task=4, nodes=1, tasks_per_node=1, stderr_to_stdout=True)


def test_calls_are_for_their_user_alone_and_what_is_not_queued_leaves_none(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    executor = submitit.AutoExecutor(folder, cluster="gpusched", gpusched_max_pickle_size_gb=1e-6)
    executor.update_parameters(gpus_per_node=0, gpusched_hold=True)
    with pytest.raises(UsageError, match="more than 1e-06 GB"):
        executor.map_array(len, [b"1", b"1" * 2000])
    assert not list(folder.iterdir())
    assert GpuschedExecutor(folder).max_pickle_size_gb == 1
    job = executor.submit(len, b"1")
    assert job.paths.submitted_pickle.stat().st_mode & 0o777 == 0o600


def test_it_is_taken_by_its_name_only() -> None:
    assert submitit.AutoExecutor.which() != "gpusched"


def test_the_launcher_has_each_argument_that_submitit_takes_and_no_other() -> None:
    own = set(GpuschedQueueConf.__dataclass_fields__) - set(BaseQueueConf.__dataclass_fields__) - {"_target_"}
    assert own == OWN


@pytest.mark.slow
def test_hydra_queues_the_runs_of_a_multirun(command: Command, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "import os\n"
        "from pathlib import Path\n"
        "import hydra\n"
        "from hydra.core.hydra_config import HydraConfig\n"
        "\n"
        "@hydra.main(version_base=None)\n"
        "def main(chosen):\n"
        "    found = HydraConfig.get()\n"
        "    limit = int(os.environ['GPUSCHED_MEMORY_LIMIT_MIB'])\n"
        "    assert 3000 < limit < 4096\n"
        "    Path(found.runtime.output_dir, 'out').write_text(f'{found.job.id} {chosen.lr}')\n"
        "\n"
        "main()\n"
    )
    chosen = ("fraction=0.25", "machine=1x16GiB", "at_most=2", "name=train")
    options = [f"hydra.launcher.{one}" for one in chosen]
    subprocess.run(
        [
            sys.executable,
            app,
            "-m",
            "hydra/launcher=submitit_gpusched",
            "hydra.sweep.dir=runs",
            "+lr=1,2,3,4",
            *options,
        ],
        cwd=tmp_path,
        env=command.env,
        check=True,
        timeout=PATIENCE_S,
    )
    array = gpusched.job("train").wait()  # results are there a little before the end
    assert array.array is not None
    assert (array.array.succeeded, array.array.at_most) == (4, 2)
    found = [(tmp_path / "runs" / str(number) / "out").read_text() for number in range(4)]
    assert found == [f"{array.id}_{number} {number + 1}" for number in range(4)]
