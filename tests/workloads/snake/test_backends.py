"""Snake learns on each backend of Keras that is installed: TensorFlow, JAX, PyTorch."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

SCRIPT = Path(__file__).parent / "scripts" / "learn.py"
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("network", "seen"), [("small", "paths"), ("small", "frame"), ("original", "frame")])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_what_pays_becomes_more_probable(backend: str, network: str, seen: str) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), network, seen],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["backend"] == backend
    assert told["after"] > 1.05 * told["before"], told
