"""What lies in a person's directories under the name of a module that gpusched needs is for the person's programs."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

import gpusched
from tests.cli.command import Command
from tests.cli.queue import queue, until_state
from tests.patience import PATIENCE_S

ROOT = Path(gpusched.__file__).parents[1]
NAMES = ("platform", "signal", "socket", "types", "typing", "enum", "uuid", "math", "select", "msgspec", "selectors")
LOADED_BEFORE = ("types", "typing", "enum", "signal")
"""`python -m` and the first lines of a console script load them: with these no Python starts at all."""

CONSOLE = (sys.executable, "-c", "import sys; del sys.path[0]; from gpusched.__main__ import main; sys.exit(main())")
"""As pip's script: what is first on the path is its directory, in which nothing lies."""

MODULE = (sys.executable, "-m", "gpusched")
FREE = ("run", "--num-gpus", "0", "--", "sh", "-c", 'echo "$PYTHONPATH" "$PYTHONSTARTUP"')
HOOK = os.pathsep.join(filter(None, ("frameworks/hook", os.environ.get("PYTHONPATH"))))
"""How the PYTHONPATH of a program ends; whoever runs the tests may have one, too."""


@pytest.fixture
def mine(command: Command) -> Path:
    """A directory with such modules, each as a package, as a repository may have it."""
    folder = command.home / "mine"
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('the {name} of a person was imported')")
    return folder


def ran(command: Command, argv: tuple[str, ...], cwd: Path) -> str:
    told = subprocess.run(
        argv, cwd=cwd, env=command.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_a_command_starts_in_a_repository_that_has_modules_of_such_names(command: Command, mine: Path) -> None:
    command.env |= {"PYTHONSTARTUP": "start.py"}

    told = ran(command, (*CONSOLE, *FREE), mine)

    assert told.endswith(f"{HOOK} start.py\n")


def test_nor_does_python_m_import_them(command: Command, mine: Path) -> None:
    for name in LOADED_BEFORE:
        shutil.rmtree(mine / name)

    assert ran(command, (*MODULE, *FREE), mine).endswith(f"{HOOK} \n")


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="the workload needs TensorFlow")
def test_nor_do_the_processes_of_a_workload_that_comes_with_gpusched(command: Command, mine: Path) -> None:
    ran(command, (*CONSOLE, "launch", "averaging", "--procs", "1", "--rounds", "1", "--machine", "cpu"), mine)

    folder = command.state / "jobs" / "averaging-1"
    assert [one["restarts"] for one in command.job("averaging-1")["replicas"]] == [0, 0]
    assert "of a person was imported" not in "".join(log.read_text() for log in (folder / "logs").iterdir())


def test_what_is_on_pythonpath_is_for_the_command_alone(command: Command, mine: Path) -> None:
    for name in LOADED_BEFORE:
        shutil.rmtree(mine / name)
    command.env |= {"PYTHONPATH": str(mine), "PYTHONSTARTUP": "start.py"}

    told = ran(command, (*CONSOLE, *FREE), command.home)

    assert told.endswith(f"frameworks/hook:{mine} start.py\n")
    name = queue(command, "--num-gpus", "0", "--", sys.executable, "-c", "import sys; sys.exit('uuid' in sys.modules)")
    until_state(command, name, "succeeded")


def test_the_command_imports_from_where_it_was_typed(command: Command) -> None:
    (command.home / "platform.py").write_text("print('mine')")

    told = ran(
        command, (*CONSOLE, "run", "--num-gpus", "0", "--", sys.executable, "-c", "import platform"), command.home
    )

    assert told == "mine\n"


@pytest.mark.parametrize("found_by", ["site-packages", "PYTHONPATH", "the working directory"])
def test_gpusched_starts_its_own_processes_wherever_it_is_found(found_by: str, command: Command) -> None:
    """With an environment of its own, that finds the dependencies, and gpusched only so."""
    home = command.home
    venv.create(home / "venv", symlinks=True)
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(str(Path(msgspec.__file__).parents[1]))
    place = site if found_by == "site-packages" else home / "source"
    shutil.copytree(ROOT / "gpusched", place / "gpusched", ignore=shutil.ignore_patterns("__pycache__"))
    if found_by == "PYTHONPATH":
        command.env["PYTHONPATH"] = str(place)
    gpusched = (str(home / "venv" / "bin" / "python"), "-m", "gpusched")
    where = place if found_by == "the working directory" else home
    seen = ("sh", "-c", "tr '\\0' ' ' < /proc/$PPID/cmdline")

    words = ran(command, (*gpusched, "run", "--num-gpus", "0", "--", *seen), where)

    assert " -E -P " in words
    assert ("-m gpusched.supervisor" in words) == (found_by == "site-packages")
    ran(command, (*gpusched, "run", "-d", "--num-gpus", "0", "--", "true"), where)
    ran(command, (*gpusched, "wait", "run-2"), where)


def test_the_user_site_that_a_person_leaves_out_is_left_out_of_gpuscheds_own_processes(command: Command) -> None:
    home = command.home
    venv.create(home / "venv", symlinks=True, system_site_packages=True)  # else there is no user site
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(f"{Path(msgspec.__file__).parents[1]}\n{ROOT}\n")
    theirs = home / ".local" / "lib" / site.parent.name / "site-packages"
    theirs.mkdir(parents=True)
    (theirs / "usercustomize.py").write_text("import os; os._exit(3)")
    command.env |= {"PYTHONNOUSERSITE": "1"}

    told = ran(command, (str(home / "venv" / "bin" / "python"), "-m", "gpusched", *FREE), home)

    assert told.endswith(f"{HOOK} \n")
