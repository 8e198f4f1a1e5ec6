"""Every replica leaves its environment and its CPUs in the run directory; the learner ends when all have."""

import json
import os
import time
from pathlib import Path

run_dir = Path(os.environ["GPUSCHED_RUN_DIR"])
told = {"env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0)), "pid": os.getpid()}
draft = run_dir / f"{os.environ['GPUSCHED_REPLICA']}.draft"
draft.write_text(json.dumps(told))
draft.rename(run_dir / f"{os.environ['GPUSCHED_REPLICA']}.told")
if os.environ["GPUSCHED_ROLE"] == "learner":
    expected = int(os.environ["TOY_EXPECTS"])
    while len(list(run_dir.glob("*.told"))) < expected:
        time.sleep(0.02)
else:
    time.sleep(600)
