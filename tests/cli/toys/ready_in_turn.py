"""Actors that are ready at once; a learner that is ready when RUN_DIR/go is there, and ends when RUN_DIR/end is."""

import os
import time
from pathlib import Path

run_dir = Path(os.environ["GPUSCHED_RUN_DIR"])
ready = run_dir / "ready" / f"{os.environ['GPUSCHED_REPLICA']}.{os.environ['GPUSCHED_ATTEMPT']}"


def wait_for(name: str) -> None:
    while not (run_dir / name).exists():
        time.sleep(0.02)


if os.environ["GPUSCHED_ROLE"] == "learner":
    wait_for("go")
ready.touch()
wait_for("end")
