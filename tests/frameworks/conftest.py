"""What the tests of gpusched.frameworks share: the environment that a launch gives, and a way to run a script in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusched.environment import child_environment, resource_environment
from gpusched.frameworks.hook.gpusched_import_hook import FRAMEWORKS
from gpusched.frameworks.jax import fraction_variable
from gpusched.model.plan import Replica
from tests.patience import PATIENCE_S

HERE = Path(__file__).parent
REPLICA = Replica(
    name="actor.0",
    role="actor",
    rank=0,
    device_index=0,
    device_uuid="GPU-0",
    limit_mib=1133,
    context_mib=450,
    fraction=701,
)
RunScript = Callable[..., "Ran"]


class Ran:
    """A script that ended: its output, and what reached TensorFlow's runtime."""

    def __init__(self, done: "subprocess.CompletedProcess[str]", record: Path) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.records: list[dict[str, Any]] = [json.loads(line) for line in record.read_text().splitlines()]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a replica with a limit of 1133 MiB on a device that the recorder stands in for."""
    base = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    record = tmp_path / "record.jsonl"
    record.touch()
    layer = resource_environment(REPLICA, fraction_variable(None))
    extra = {"RECORD": str(record), "PYTHONPATH": str(HERE / "recording"), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return child_environment(base, layer, extra)


@pytest.fixture
def run_script(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> RunScript:
    """Run a script of `scripts/`, or a code given to -c, as a replica, in a directory that holds nothing to import."""
    empty = tmp_path_factory.mktemp("empty")

    def run(*argv: str, python: str = sys.executable, env: dict[str, str] | None = None) -> Ran:
        argv = tuple(str(HERE / "scripts" / arg) if arg.endswith(".py") else arg for arg in argv)
        env = environment if env is None else env
        done = subprocess.run(
            [python, *argv], env=env, cwd=empty, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        return Ran(done, Path(environment["RECORD"]))

    return run


@pytest.fixture
def none_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process look as if no framework was loaded, whatever tests before it did."""
    for name in FRAMEWORKS:
        monkeypatch.delitem(sys.modules, name, raising=False)
