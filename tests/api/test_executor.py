"""Executor: functions run as jobs of the queue, with their results, their exceptions, and why they died."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, CancelledError, Future, as_completed, wait
from pathlib import Path
from typing import Any

import joblib
import optuna
import pytest

import gpusched
import gpusched.joblib
from gpusched.api import executor as executor_module
from gpusched.api import queue
from gpusched.calls import RemoteError
from gpusched.errors import GpuschedError, HostFault, JobFailed, NoDaemon, UsageError
from gpusched.execution.daemon_link import Link
from gpusched.settings import load_settings
from tests.cli.command import Command
from tests.patience import until

pytestmark = pytest.mark.usefixtures("command")


class NotAgainError(Exception):
    """An exception that pickles, and cannot be unpickled."""

    def __init__(self, one: int, _other: int) -> None:
        super().__init__(one)


class NotHere:
    """A value that pickles, and cannot be unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return NotAgainError, (1,)


class NeverError(Exception):
    """An exception that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


def raising(error: Callable[[], BaseException]) -> None:
    raise error()


def test_a_daemon_that_does_not_answer_is_no_lack_of_jobs() -> None:
    with Link(load_settings(os.environ)) as link, pytest.raises(NoDaemon):
        executor_module._present(link, ["run-1[0]", "run-1[1]"])


@pytest.fixture
def executor() -> Iterator[gpusched.Executor]:
    with gpusched.Executor(num_gpus=0, at_most=2) as found:
        yield found


def test_results_come_as_of_any_executor(executor: gpusched.Executor) -> None:
    assert list(executor.map(pow, (2, 3, 4), (5, 2, 2))) == [32, 9, 16]
    number = 7
    assert executor.submit(lambda: number + 1).result() == 8
    futures = [executor.submit(divmod, one, 3) for one in range(3)]
    assert {future.result() for future in as_completed(futures)} == {(0, 0), (0, 1), (0, 2)}
    assert len(executor.submit(bytes, 100_000_000).result()) == 100_000_000


def test_a_call_is_a_job_with_its_part_of_a_device_and_its_log() -> None:
    def shown() -> tuple[str, str]:
        print("from within")
        return os.environ["CUDA_VISIBLE_DEVICES"], os.environ["GPUSCHED_MEMORY_LIMIT_MIB"]

    with gpusched.Executor(fraction=0.25, machine="1x16GiB") as executor:
        future = executor.submit(shown)
        _, limit = future.result()
    assert 3000 < int(limit) < 4096
    assert "from within" in list(gpusched.job(future.job_id).logs())


def test_an_exception_comes_back_with_its_traceback_and_the_others_go_on(executor: gpusched.Executor) -> None:
    division = executor.submit(divmod, 1, 0)
    leaving = executor.submit(sys.exit, 3)
    with pytest.raises(ZeroDivisionError) as found:
        division.result()
    assert isinstance(found.value.__cause__, RemoteError)
    assert "divmod" in str(found.value.__cause__) or "ZeroDivisionError" in str(found.value.__cause__)
    assert isinstance(leaving.exception(), SystemExit)
    assert executor.submit(abs, -3).result() == 3


def test_what_cannot_be_pickled_or_unpickled_is_an_error_with_the_reason(executor: gpusched.Executor) -> None:
    again = executor.submit(raising, lambda: NotAgainError(1, 2)).exception()
    assert isinstance(again, RuntimeError)
    assert "NotAgainError: 1" in str(again)
    assert isinstance(executor.submit(NotHere).exception(), HostFault)
    never = executor.submit(raising, NeverError).exception()
    assert isinstance(never, RuntimeError)
    assert "NeverError: it holds a lock" in str(never)
    assert "cannot pickle" in str(executor.submit(threading.Lock).exception())
    assert isinstance(executor.submit(print, threading.Lock()).exception(), TypeError)
    assert executor.submit(abs, -3).result() == 3


def test_a_call_that_kills_itself_fails_with_the_reason_and_the_others_go_on(executor: gpusched.Executor) -> None:
    dead = executor.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
    alive = [executor.submit(abs, -one) for one in range(3)]
    with pytest.raises(JobFailed, match="SIGKILL"):
        dead.result()
    assert [future.result() for future in alive] == [0, 1, 2]


def test_a_call_over_its_time_limit_fails_with_that_reason() -> None:
    with (
        gpusched.Executor(num_gpus=0, time_limit="1s", grace=0.5) as executor,
        pytest.raises(JobFailed, match="time limit"),
    ):
        executor.submit(time.sleep, 600).result()


def both_places_taken(executor: gpusched.Executor, until_there: Path) -> Sequence[Future[None]]:
    def hold() -> None:
        while not until_there.exists():
            time.sleep(0.01)

    holding = [executor.submit(hold) for _ in range(2)]
    until(lambda: all(future.running() for future in holding), "both places are taken")
    return holding


def test_what_has_not_begun_can_be_cancelled_and_never_runs(executor: gpusched.Executor, tmp_path: Path) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    holding = both_places_taken(executor, until_there=go)
    behind = executor.submit(ran.touch)
    assert behind.cancel()
    assert not holding[0].cancel()
    go.touch()
    wait([*holding, behind], return_when=ALL_COMPLETED)
    with pytest.raises(CancelledError):
        behind.result()
    executor.shutdown()
    assert not ran.exists()


def test_a_call_that_was_stopped_before_it_began_fails_while_those_before_it_go_on(
    executor: gpusched.Executor, tmp_path: Path
) -> None:
    go, ran = tmp_path / "go", tmp_path / "ran"
    holding = both_places_taken(executor, until_there=go)
    behind = executor.submit(ran.touch)
    array = gpusched.job(behind.job_id.partition("[")[0])
    until(lambda: (found := array.status().array) is not None and found.waiting == 1, "the daemon knows of it")
    queue.stop(behind.job_id)
    with pytest.raises(JobFailed, match="stopped"):
        behind.result()
    assert not any(future.done() for future in holding)
    go.touch()
    wait(holding)
    assert not ran.exists()


def test_however_calls_are_cancelled_while_they_begin_each_future_ends(executor: gpusched.Executor) -> None:
    futures = [executor.submit(abs, -one) for one in range(60)]
    while not all(future.done() for future in futures):
        for future in futures[1::2]:
            future.cancel()
    for number, future in enumerate(futures):
        assert future.cancelled() or future.result() == number
        assert number % 2 or not future.cancelled()


def test_what_goes_wrong_in_a_callback_is_no_fault_of_the_other_calls(executor: gpusched.Executor) -> None:
    first = executor.submit(time.sleep, 0.2)
    first.add_done_callback(lambda _: sys.exit("a callback"))
    second = executor.submit(abs, -2)
    second.add_done_callback(lambda future: future.result() / 0)
    assert (first.result(), second.result(), executor.submit(abs, -3).result()) == (None, 2, 3)


def test_a_fork_of_the_process_leaves_the_executor_alone(executor: gpusched.Executor) -> None:
    child = os.fork()
    if child == 0:
        try:
            executor.submit(abs, -1)
        except RuntimeError:
            executor.shutdown()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert executor.submit(abs, -1).result() == 1


def test_a_call_imports_what_its_program_imports(command: Command, tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helpers.py").write_text(f"def name():\n    return {name!r}\n")
    script = tmp_path / "mine" / "program.py"
    script.write_text(
        "import gpusched, helpers\n"
        "with gpusched.Executor(num_gpus=0) as executor:\n"
        "    print(helpers.name(), executor.submit(helpers.name).result())\n"
    )
    argv: list[str | Path] = [sys.executable, script]
    ended = subprocess.run(argv, env=command.env, capture_output=True, text=True, check=True, cwd=tmp_path / "other")
    assert ended.stdout == "mine mine\n"


def test_an_executor_without_a_call_is_shown_and_its_calls_are_not_run_again(command: Command) -> None:
    executor = gpusched.Executor(num_gpus=0)
    shown = command.run("ps")
    assert (shown.returncode, executor.array in shown.stdout) == (0, True)
    assert command.run("results", executor.array).returncode == 0
    future = executor.submit(abs, -1)
    assert future.result() == 1
    executor.shutdown()
    gpusched.job(executor.array).wait()
    for words in (("sweep", "--resume", executor.array), ("rerun", executor.array)):
        refused = command.run(*words)
        assert (refused.returncode, "the calls of an Executor" in refused.stderr) == (2, True)


def test_after_shutdown_nothing_is_taken_and_what_was_taken_ends() -> None:
    executor = gpusched.Executor(num_gpus=0)
    future = executor.submit(abs, -1)
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -2)
    assert future.result() == 1
    executor.shutdown()
    array = gpusched.job(executor.array).wait()
    assert (str(array.state), array.array and array.array.succeeded) == ("succeeded", 1)
    assert not (Path(array.run_dir) / "calls").exists()


def test_shutdown_can_cancel_what_has_not_begun(tmp_path: Path) -> None:
    go = tmp_path / "go"

    def hold() -> int:
        while not go.exists():
            time.sleep(0.01)
        return 1

    executor = gpusched.Executor(num_gpus=0, at_most=1)
    futures = [executor.submit(hold) for _ in range(20)]
    until(futures[0].running, "the first runs")
    executor.shutdown(wait=False, cancel_futures=True)
    go.touch()
    assert futures[0].result() == 1
    assert all(future.cancelled() for future in futures[1:])
    executor.shutdown()
    array = gpusched.job(executor.array).wait()
    assert array.array is not None
    assert array.array.count < 20


def test_a_notebook_that_is_closed_leaves_nothing_running(command: Command, tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(
        "import gpusched, time\n"
        "executor = gpusched.Executor(num_gpus=0, at_most=1)\n"
        "futures = [executor.submit(time.sleep, 600) for _ in range(3)]\n"
        "print(executor.array, flush=True)\n"
        "time.sleep(600)\n"
    )
    notebook = subprocess.Popen([sys.executable, script], env=command.env, stdout=subprocess.PIPE, text=True)
    assert notebook.stdout is not None
    array = notebook.stdout.readline().strip()
    until(lambda: gpusched.job(array).status().state == "running", "a call runs")
    notebook.kill()
    notebook.communicate()
    ended = gpusched.job(array).wait()
    assert (str(ended.state), ended.array and (ended.array.live, ended.array.cancelled)) == ("cancelled", (0, 1))


def test_a_program_that_ends_waits_for_its_calls(command: Command, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import gpusched\n"
        "executor = gpusched.Executor(num_gpus=0)\n"
        "executor.submit(pow, 2, 3).add_done_callback(lambda future: print(future.result()))\n"
    )
    ended = subprocess.run([sys.executable, script], env=command.env, capture_output=True, text=True, check=True)
    assert ended.stdout == "8\n"
    assert json.loads(command.run("ps", "run-1", "--json").stdout)["jobs"][0]["name"] == "program"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/train.py", "train"),
        ("/a/tool/__main__.py", "tool"),
        ("<stdin>", None),
        (None, None),
        ("/a/lr[1]*\udcff.py", "lr-1---"),
        (f"/a/{'x' * 250}.py", "x" * 100),
        ("/.py", "py"),
    ],
)
def test_an_executor_is_called_as_its_program_whatever_that_is_called(
    monkeypatch: pytest.MonkeyPatch, path: str | None, name: str | None
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", path, raising=False)
    assert executor_module._program() == name


@pytest.mark.parametrize("line", ["with executor: submitted()", "submitted()"])
def test_ctrl_c_stops_the_calls_and_cancels_those_that_wait(command: Command, tmp_path: Path, line: str) -> None:
    script = f"""
import gpusched, pathlib, time
def call(number):
    pathlib.Path({str(tmp_path)!r}, f"began-{{number}}").touch()
    time.sleep(600)
    pathlib.Path({str(tmp_path)!r}, f"ended-{{number}}").touch()
executor = gpusched.Executor(num_gpus=0, at_most=1)
def submitted():
    calls = [executor.submit(call, number) for number in range(2)]
    calls[0].result()
{line}
"""
    with subprocess.Popen([sys.executable, "-c", script], env=command.env, stderr=subprocess.PIPE) as program:
        until((tmp_path / "began-0").exists, "the first has begun")
        program.send_signal(signal.SIGINT)
        told = program.communicate()[1]
    assert told.rstrip().endswith(b"KeyboardInterrupt")
    assert sorted(path.name for path in tmp_path.glob("[be]*-*")) == ["began-0"]
    assert command.run("ps", "--state", "running").stdout.startswith("no job matches")


def test_the_daemon_may_be_killed_meanwhile(command: Command, executor: gpusched.Executor) -> None:
    futures = [executor.submit(abs, -one) for one in range(12)]
    assert futures[0].result() == 0
    os.kill(command.daemon(), signal.SIGKILL)
    assert [future.result() for future in futures] == list(range(12))


def test_joblib_runs_on_it() -> None:
    with joblib.parallel_config("gpusched", n_jobs=2, num_gpus=0):
        assert joblib.Parallel()(joblib.delayed(pow)(one, 2) for one in range(5)) == [0, 1, 4, 9, 16]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, one) for one in range(3))


def test_optuna_runs_on_it(executor: gpusched.Executor, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="mine", storage=url)

    def objective(trial: optuna.Trial) -> float:
        return float((trial.suggest_float("x", -10, 10) - 2) ** 2)

    def work(_: int) -> None:
        optuna.load_study(study_name="mine", storage=url).optimize(objective, n_trials=10)

    list(executor.map(work, range(5)))
    assert len(study.trials) == 50
    assert study.best_value == min(trial.value for trial in study.trials if trial.value is not None)


def test_calls_find_imported_what_is_preloaded() -> None:
    with gpusched.Executor(num_gpus=0, at_most=2, preload=["colorsys"]) as executor:
        assert list(executor.map(lambda _: "colorsys" in sys.modules, range(4))) == [True] * 4
        error = executor.submit(lambda: 1 / 0).exception()
        assert isinstance(error, ZeroDivisionError)
        assert isinstance(error.__cause__, RemoteError)
        with pytest.raises(JobFailed, match="SIGKILL"):
            executor.submit(lambda: os.kill(os.getpid(), signal.SIGKILL)).result()
    with pytest.raises(UsageError, match="no_such_module"):
        gpusched.Executor(num_gpus=0, preload=["no_such_module"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"at_most": 0}, "at_most"),
        ({"preload": "tensorflow"}, "preload"),
        ({"requeue": True}, "runs once"),
        ({"retry": 2}, "runs once"),
        ({"fraction": 2}, "fraction"),
        ({"memory": "6"}, "memory"),
    ],
)
def test_what_no_call_could_have_is_refused_at_once(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        gpusched.Executor(**given)
    with pytest.raises(TypeError):
        gpusched.Executor(no_such_argument=1)  # type: ignore[call-arg]
    with pytest.raises(GpuschedError):
        gpusched.Executor(machine="1x16GiB", memory="17GiB")
