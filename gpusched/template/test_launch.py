"""Launches the workload as a person does, and checks what it has learnt: run `pytest` with this folder's path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent


def test_it_learns_ends_by_itself_and_leaves_its_weights(tmp_path: Path) -> None:
    command = ["launch", str(FOLDER / "workload.toml"), "--updates", "2000", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "gpusched", *command],
        cwd=FOLDER.parents[1],  # where `gpusched launch` finds the folder `workloads`
        env=os.environ | {"GPUSCHED_STATE_DIR": str(tmp_path)},  # its job is none of yours
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    run_dir = Path(json.loads(done.stdout)["run_dir"])
    scores = [json.loads(line)["score"] for line in (run_dir / "progress.jsonl").read_text().splitlines()]
    assert scores[-1] > scores[0] + 0.5
    with np.load(run_dir / "weights.npz") as weights:
        assert weights["updates"] == 2000
