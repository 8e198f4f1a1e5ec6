"""The import hook, in real interpreters: what a script sees of it (nothing), and what happens if something is wrong."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpusched.environment import HOOK_DIRECTORY, child_environment
from tests.frameworks.conftest import HERE, RunScript

FINDERS = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('LimitingFinder'))"


def on_the_path(environment: dict[str, str], directory: Path) -> dict[str, str]:
    return child_environment({**environment, "PYTHONPATH": str(directory)})


def limited(environment: dict[str, str], directory: Path) -> dict[str, str]:
    """The environment again, with `directory` instead of the recorder on the path."""
    limits = {name: value for name, value in environment.items() if name.startswith("GPUSCHED_")}
    return on_the_path(environment, directory) | limits


def test_a_script_sees_the_path_and_the_modules_that_it_would_have_without_gpusched(
    run_script: RunScript, environment: dict[str, str]
) -> None:
    code = "import sys; print(sys.path, sorted(name for name in sys.modules if name.split('.')[0] == 'gpusched'))"
    bare = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    with_hook = run_script("-c", code, env=bare | {"PYTHONPATH": str(HOOK_DIRECTORY)})
    assert with_hook.out == run_script("-c", code, env=bare).out
    assert with_hook.err == ""


def test_the_hook_is_inherited_by_child_interpreters(run_script: RunScript) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-s', '-c', {FINDERS!r}], check=True)"
    assert run_script("-c", code).out.strip() == "1"


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_options_that_ignore_the_path_leave_the_hook_out_as_its_page_says(run_script: RunScript, option: str) -> None:
    assert run_script(option, "-c", FINDERS).out.strip() == "0"


def test_an_existing_sitecustomize_still_runs_and_is_the_one_that_scripts_import(
    run_script: RunScript, environment: dict[str, str]
) -> None:
    code = f"import sitecustomize; print(sitecustomize.__file__); {FINDERS}"
    ran = run_script("-c", code, env=environment)
    assert ran.out.splitlines() == [str(HERE / "recording" / "sitecustomize.py"), "1"]


@pytest.mark.parametrize("body", ["raise RuntimeError('broken')", "import no_such_module", "not python"])
def test_a_broken_sitecustomize_is_told_as_python_tells_it_and_the_script_runs(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path, body: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(body)
    with_hook = run_script("-c", FINDERS, env=on_the_path(environment, tmp_path))
    without = run_script("-c", "print(1)", env={**environment, "PYTHONPATH": str(tmp_path)})
    assert (with_hook.out, with_hook.err) == (without.out, without.err)
    assert "Error in sitecustomize" in with_hook.err


def test_what_cannot_be_limited_is_said_once_and_the_script_runs(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '0.1'\nclass cuda: pass\n")
    code = "import importlib, torch; importlib.reload(torch); import torch; print(torch.__version__)"
    ran = run_script("-c", code, env=limited(environment, tmp_path))
    assert ran.out.strip() == "0.1"
    assert "the memory limit is NOT applied to torch: PyTorch 0.1 cannot be limited" in ran.err
    assert "use PyTorch 1.8 or newer" in ran.err


def test_a_limit_that_is_no_limit_is_said_and_the_script_runs(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").touch()
    env = limited(environment, tmp_path) | {"GPUSCHED_MEMORY_LIMIT_MIB": "plenty"}
    ran = run_script("-c", "import torch; print('ran')", env=env)
    assert ran.out.strip() == "ran"
    assert ran.err.count("NOT applied to torch: GPUSCHED_MEMORY_LIMIT_MIB=plenty") == 1


def test_without_a_limit_importing_a_framework_imports_nothing_of_gpusched(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").touch()
    code = "import sys, torch; print('gpusched' in sys.modules)"
    ran = run_script("-c", code, env=on_the_path(environment, tmp_path))
    assert (ran.out.strip(), ran.err) == ("False", "")


LIKE_TORCH = """
import types
calls = []
cuda = types.SimpleNamespace(
    memory=types.SimpleNamespace(set_per_process_memory_fraction=lambda *given: calls.append(given)),
    _lazy_call=lambda call: call(),
    device_count=lambda: 1,
)
"""


def test_an_interpreter_that_has_neither_gpusched_nor_its_dependencies_is_limited_too(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (tmp_path / "torch.py").write_text(LIKE_TORCH)
    python, env = str(tmp_path / "venv" / "bin" / "python"), limited(environment, tmp_path)
    check = "import importlib.util as u; print([u.find_spec(name) for name in ('gpusched', 'msgspec')])"
    assert run_script("-c", check, python=python, env=env).out.strip() == "[None, None]"
    code = "import sys, torch; print(torch.calls)"
    ran = run_script("-c", code, python=python, env=env)
    assert (ran.out.strip(), ran.err) == ("[(0.0701, 0)]", "")
    code = "import torch, gpusched.frameworks.tensorflow, gpusched.frameworks.jax; print('loaded')"
    assert run_script("-c", code, python=python, env=env).out.strip() == "loaded"


OTHER_FINDER = """
import importlib.util, sys
class Tracing:  # how tracing tools wrap imports: ask everybody else, guard against being asked again
    busy = False
    def find_spec(self, name, path=None, target=None):
        if Tracing.busy or name != "torch":
            return None
        Tracing.busy = True
        try:
            return importlib.util.find_spec(name)
        finally:
            Tracing.busy = False
sys.meta_path.insert(0, Tracing())
"""


def test_it_lives_with_other_wrapping_finders_and_with_being_asked_only_for_a_spec(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_FINDER)
    (tmp_path / "torch.py").touch()
    code = "import importlib.util, torch; importlib.util.find_spec('torch'); print(type(torch.__loader__).__name__)"
    ran = run_script("-c", code, env=limited(environment, tmp_path) | {"GPUSCHED_MEMORY_LIMIT_MIB": "0"})
    assert ran.out.strip() == "SourceFileLoader"
    assert "NOT applied to torch" in ran.err


def test_an_import_that_fails_fails_as_ever_and_may_be_tried_again(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(
        "import os\nif os.environ.pop('FIRST', ''): raise ImportError('half installed')\n"
    )
    code = "try: import torch\nexcept ImportError as error: print(error)\nimport torch; print('second')"
    env = limited(environment, tmp_path) | {"FIRST": "1", "GPUSCHED_MEMORY_LIMIT_MIB": "0"}
    ran = run_script("-c", code, env=env)
    assert ran.out.splitlines() == ["half installed", "second"]
    assert ran.err.count("NOT applied to torch") == 1


def test_the_hook_loads_nothing_that_python_has_not_loaded_by_itself() -> None:
    """What it adds to the start of every interpreter: two modules, and no module of the standard library."""
    code = "import sys; print('\\n'.join(sorted(sys.modules)))"
    without = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    env = {"PYTHONPATH": str(HOOK_DIRECTORY)}
    with_hook = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert set(with_hook.stdout.split()) - set(without.stdout.split()) <= {
        "gpusched_import_hook",
        "sitecustomize",
        "__future__",
    }
