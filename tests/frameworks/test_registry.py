"""A framework that is not one of gpusched's: one module, one line in the table, and no change anywhere else."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gpusched.doctor.examine import framework_checks
from gpusched.doctor.facts import Finding
from gpusched.environment import child_environment, not_inherited, resource_environment
from gpusched.errors import HostFault
from gpusched.execution.requirements import require_modules
from gpusched.frameworks.forking import obstacle_to_fork
from gpusched.frameworks.hook.gpusched_import_hook import FRAMEWORKS
from gpusched.frameworks.registry import frameworks
from gpusched.joining.invitation import versions
from gpusched.model.workload import Role, Workload
from gpusched.supervisor import memory_errors
from tests.doctor.test_checks import devices, software
from tests.frameworks.conftest import REPLICA, RunScript

ROOT = Path(__file__).parents[2]
TOY = "tests.frameworks.toy_framework"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the framework `toyframe` registered in this process."""
    monkeypatch.setitem(FRAMEWORKS, "toyframe", TOY)
    memory_errors._device.cache_clear()
    yield
    memory_errors._device.cache_clear()


def test_its_limit_is_in_force_once_a_program_has_imported_it_and_its_peaks_are_left(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "toyframe.py").write_text("most_mib = None")
    lines = (
        "import sys, gpusched_import_hook",
        f"sys.path += [{str(ROOT)!r}, {str(tmp_path)!r}]",
        f"gpusched_import_hook.FRAMEWORKS['toyframe'] = {TOY!r}",
        "import toyframe",
        "print(toyframe.most_mib)",
    )

    replica = {"GPUSCHED_RUN_DIR": str(tmp_path), "GPUSCHED_REPLICA": "actor.0", "GPUSCHED_ATTEMPT": "0"}
    ran = run_script("-c", "\n".join(lines), env=environment | replica)

    assert (ran.out, ran.err) == ("1133\n", "")
    [left] = (tmp_path / "memory").iterdir()
    [found] = json.loads(left.read_text())
    assert found.pop("since") <= found.pop("until")
    assert found == {"framework": "toyframe", "version": None, "peak_mib": 1, "pool_mib": None}
    assert [path.name.partition(".")[2] for path in (tmp_path / "limits").iterdir()] == ["toyframe"]


@pytest.mark.usefixtures("toy")
def test_its_variables_are_set_and_what_would_lift_the_limit_is_not_inherited() -> None:
    env = child_environment({"TOYFRAME_UNLIMITED": "1"}, resource_environment(REPLICA, "X"))
    assert (env["TOYFRAME_FRACTION"], env["TOYFRAME_THREADS"]) == ("0.07", "1")
    assert "TOYFRAME_UNLIMITED" not in env
    assert "TOYFRAME_UNLIMITED" in not_inherited()


@pytest.mark.usefixtures("toy")
def test_what_it_prints_without_memory_is_recognised() -> None:
    assert memory_errors.memory_that_ran_out(b"loading\nToyframeFull: 12 blocks\n") == "device"
    assert memory_errors.memory_that_ran_out(b"ToyframeFull") is None


@pytest.mark.usefixtures("toy", "none_loaded")
def test_a_process_that_has_imported_it_is_not_forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert obstacle_to_fork(str(tmp_path)) is None
    monkeypatch.setitem(sys.modules, "toyframe", ModuleType("toyframe"))
    assert obstacle_to_fork(str(tmp_path)) == "toyframe counts its processes"


@pytest.mark.usefixtures("toy")
def test_where_it_is_missing_a_launch_names_what_to_do_and_doctor_and_join_know_its_versions() -> None:
    workload = Workload(name="toy", roles=(Role(name="a", command=("{python}",)),), preload=("toyframe",))
    with pytest.raises(HostFault) as error:
        require_modules(workload)
    assert error.value.hint == "build toyframe"
    found = framework_checks()[-1](software({"toyframe": "1.0"}), devices())
    assert isinstance(found, Finding)
    assert (found.check, found.found) == ("toyframe", "toyframe 1.0")
    assert "msgspec" in versions()


def test_a_registration_imports_neither_a_framework_nor_what_gpusched_itself_needs() -> None:
    code = "import sys; from gpusched.frameworks.registry import frameworks; frameworks(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"gpusched.frameworks.tensorflow", "gpusched.frameworks.cupy"} <= imported
    assert not imported & {*(one.name for one in frameworks()), "msgspec", "numpy", "threading", "pathlib"}


def test_a_framework_that_its_variables_limit_is_none_that_was_limited_in_the_process(
    run_script: RunScript, environment: dict[str, str], tmp_path: Path
) -> None:
    for name in ("cupy", "toyframe"):
        (tmp_path / f"{name}.py").touch()
    lines = (
        "import sys",
        f"sys.path += [{str(ROOT)!r}, {str(tmp_path)!r}]",
        "from gpusched.frameworks import FRAMEWORKS, limit_memory",
        f"FRAMEWORKS['toyframe'] = {TOY!r}",
        "import cupy, toyframe",
        "print(limit_memory(), toyframe.most_mib)",
    )
    assert run_script("-c", "\n".join(lines), env=environment).out == "('toyframe',) 1133\n"
