"""Imports only go down: this walks every import of the package and fails on an arrow that goes up."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    {"errors", "units", "times", "notify_settings", "settings_keys", "settings", "interpreter"},
    {"model", "frameworks"},
    {"linux"},
    {"runtime", "joining", "calls"},
    {"environment"},
    {"probe", "planner", "control", "channel", "notifications"},
    {"leases"},
    {"execution"},
    {"zygote", "storage"},
    {"supervisor", "scheduling"},
    {"engines", "attached", "daemon", "doctor", "export", "metrics"},
    {"render"},
    {"api"},
    {"web"},
    {"cli", "joblib", "submitit"},
    {"template"},
]
WITHIN_BOTTOM = {
    ("units", "errors"),
    ("times", "errors"),
    ("notify_settings", "errors"),
    ("settings_keys", "notify_settings"),
    ("settings_keys", "errors"),
    ("settings_keys", "units"),
    ("settings_keys", "times"),
    ("settings", "notify_settings"),
    ("settings", "settings_keys"),
    ("settings", "errors"),
}
FOR_WORKLOADS = {"runtime", "channel", "frameworks"}
HEAVY = {"tensorflow", "keras", "numpy", "torch", "jax"}
LIGHT_ROOMS = {
    "errors",
    "units",
    "times",
    "render",
    "settings",
    "model",
    "linux",
    "runtime",
    "environment",
    "joining",
    "notifications",
    "notify_settings",
    "settings_keys",
    "probe",
    "planner",
    "control",
    "execution",
    "leases",
    "supervisor",
    "attached",
    "storage",
    "scheduling",
    "daemon",
    "doctor",
    "export",
    "metrics",
    "cli",
}


def layer_of(room: str) -> int:
    return next(level for level, rooms in enumerate(LAYERS) if room in rooms)


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def imports(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import hides its layer"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def rooms(names: list[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("gpusched.") and name.count(".") >= 1} - {
        "__version__"
    }


@pytest.mark.parametrize("path", sources("gpusched"), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_go_down(path: Path) -> None:
    room = path.relative_to(ROOT / "gpusched").parts[0].removesuffix(".py")
    if room in {"__init__", "__main__"}:
        return
    for other in rooms(imports(path)) - {room}:
        below = layer_of(other) < layer_of(room) or (room, other) in WITHIN_BOTTOM
        assert below, f"{path.relative_to(ROOT)} imports gpusched.{other}, which is not below it"


def test_what_lies_below_the_command_line_does_not_import_it_by_name_either() -> None:
    above = {ROOT / "gpusched" / "__main__.py", *sources("gpusched/cli")}
    assert not [str(path) for path in sources("gpusched") if path not in above and "gpusched.cli" in path.read_text()]


def test_what_ray_gets_by_value_needs_no_gpusched_where_it_arrives() -> None:
    assert not rooms(imports(ROOT / "gpusched" / "engines" / "ray" / "node_actor.py"))


@pytest.mark.parametrize(
    "path", [*sources("workloads"), *sources("gpusched/template")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_workloads_import_only_what_is_public_to_them(path: Path) -> None:
    assert rooms(imports(path)) - {"template"} <= FOR_WORKLOADS


@pytest.mark.parametrize("path", sources("workloads/common"), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_workloads_share_knows_none_of_them(path: Path) -> None:
    assert {name.split(".")[1] for name in imports(path) if name.startswith("workloads.")} <= {"common"}


@pytest.mark.parametrize("path", sources("gpusched"), ids=lambda path: str(path.relative_to(ROOT)))
def test_gpusched_knows_no_workload(path: Path) -> None:
    assert "workloads" not in {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", sources("gpusched/frameworks"), ids=lambda path: str(path.relative_to(ROOT)))
def test_frameworks_need_nothing_but_python_and_the_framework_that_is_there(path: Path) -> None:
    """They run in interpreters that have neither gpusched's dependencies nor, but for the hook, gpusched."""
    allowed = {*sys.stdlib_module_names, "gpusched", "gpusched_import_hook", "sitecustomize", "tensorflow", "torch"}
    assert {name.split(".")[0] for name in imports(path)} <= allowed
    assert rooms(imports(path)) <= {"errors", "frameworks"}


@pytest.mark.parametrize("path", sources("gpusched"), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_nvml_probes_know_pynvml(path: Path) -> None:
    knows = any(name.split(".")[0] == "pynvml" for name in imports(path))
    assert not knows or path.match("gpusched/probe/nvml*.py")


@pytest.mark.parametrize("room", sorted(LIGHT_ROOMS))
def test_light_rooms_never_import_a_framework_or_numpy(room: str) -> None:
    for path in [*sources(f"gpusched/{room}"), *(ROOT / "gpusched").glob(f"{room}.py")]:
        heavy = {name.split(".")[0] for name in imports(path)} & HEAVY
        assert not heavy, f"{path.relative_to(ROOT)} imports {heavy}"


@cache
def all_texts() -> dict[str, set[object]]:
    """Return the constants in each module."""
    return {
        path.relative_to(ROOT / "gpusched").as_posix(): {
            node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)
        }
        for path in sources("gpusched")
    }


NAMED = {
    "slurm": {"settings", "engines/slurm"},
    "ray": {"settings", "engines/ray"},
    "tensorflow": {"frameworks", "doctor", "environment"},  # Keras names it as its backend
    "torch": {"frameworks", "doctor"},
    "jax": {"frameworks", "doctor"},
    "cupy": {"frameworks"},
}


@pytest.mark.parametrize("name", NAMED)
def test_an_engine_or_a_framework_is_known_by_its_name_only_where_it_is_registered(name: str) -> None:
    knowing = [where for where, texts in all_texts().items() if name in texts]
    assert not [where for where in knowing if not where.startswith((*NAMED[name], "template"))]


def test_importing_the_package_imports_nothing_else() -> None:
    import subprocess

    code = "import sys; before = set(sys.modules); import gpusched; print(sorted(set(sys.modules) - before))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert told.strip() == "['gpusched']"
