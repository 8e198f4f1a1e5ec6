"""`{python}` in a workload is that of the environment a person works in, and a missing module is told with it."""

import sys
import venv
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.execution.active_python import active_python, with_active_python
from gpusched.execution.workloads import load_workload
from tests.cli.command import Command
from tests.cli.queue import state, until_state


@pytest.fixture
def active(command: Command) -> Path:
    """An active environment that has nothing but Python and one module."""
    home = command.home / "venv"
    venv.create(home, symlinks=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    (site / "only_there.py").write_text("")
    command.env |= {"VIRTUAL_ENV": str(home), "PATH": f"{home / 'bin'}:{command.env['PATH']}"}
    return home / "bin" / "python"


def workload(command: Command, code: str, job: str = "") -> str:
    (command.home / "script.py").write_text(code)
    path = command.home / "mine.toml"
    text = f'name = "mine"\n[roles.one]\ncommand = ["{{python}}", "{command.home}/script.py"]\n'
    path.write_text(f'{text}restart = {{ policy = "never" }}\n[job]\n{job}\n')
    return str(path)


def log(command: Command, name: str) -> str:
    return (command.state / "jobs" / name / "logs" / "one.0.log").read_text()


@pytest.mark.parametrize("detached", [False, True], ids=["launch", "launch -d"])
def test_a_persons_workload_runs_by_the_active_environment(detached: bool, command: Command, active: Path) -> None:
    path = workload(command, "import only_there, sys; print(sys.executable)")

    told = command.run("launch", path, "--machine", "cpu", *(("-d",) if detached else ()))

    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{{python}} is {active}, of the active environment" in told.stderr
    if detached:
        until_state(command, "mine-1", "succeeded")
    assert f"{active}\n" in log(command, "mine-1")


def test_what_cannot_be_forked_is_executed_and_said(command: Command, active: Path) -> None:
    path = workload(command, "import sys; print('json' in sys.modules)", 'preload = ["json"]')

    told = command.run("launch", path, "--machine", "cpu")

    assert told.returncode == 0, told.stdout + told.stderr
    assert (
        f"{active}, of the active environment, which no replica can be forked from: preload is left out" in told.stderr
    )
    assert "False\n" in log(command, "mine-1")
    assert not (command.state / "jobs" / "mine-1" / "logs" / "zygote.log").exists()


@pytest.mark.parametrize(("module", "install"), [("torch_of_mine", "it"), ("gpusched.environment", "gpusched")])
def test_a_missing_module_is_told_with_the_interpreter(
    module: str, install: str, command: Command, active: Path
) -> None:
    path = workload(command, f"import {module}")

    told = command.run("launch", path, "--machine", "cpu")

    missing = module.partition(".")[0]
    assert told.returncode == 1
    assert f"no module named '{missing}' in {active}: install {install} there" in told.stdout + told.stderr
    assert "crashed with code 1: no module named" in str(command.job("mine-1")["message"])
    assert state(command, "mine-1") == "failed"


def test_what_gpusched_brings_runs_by_its_own_interpreter(tmp_path: Path) -> None:
    snake = load_workload("snake")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    environ = {"VIRTUAL_ENV": str(tmp_path)}

    assert with_active_python(snake, environ).python is None
    roles = (replace(snake.roles[0], command=("{python}", "{{python}}", "-c", "{{x}}{python}")),)
    mine, python = replace(snake, path=tmp_path / "workload.toml", roles=roles), str(tmp_path / "bin" / "python")
    filled = with_active_python(mine, environ).workload.roles[0].command
    assert filled == (python, "{{python}}", "-c", "{{x}}" + python)
    assert active_python(environ) == str(tmp_path / "bin" / "python")
    assert active_python({"VIRTUAL_ENV": "/gone", "CONDA_PREFIX": str(tmp_path)}) == str(tmp_path / "bin" / "python")
    assert active_python({"VIRTUAL_ENV": sys.prefix, "CONDA_PREFIX": str(tmp_path)}) is None
    assert active_python({}) is None
