"""Replicas that print two lines; the learner reports a score and ends when RUN_DIR/end is there, the actors wait."""

import json
import os
import time
from pathlib import Path

run_dir = Path(os.environ["GPUSCHED_RUN_DIR"])
print("first line", flush=True)
print("<b>last</b> line", flush=True)
if os.environ["GPUSCHED_ROLE"] == "learner":
    with (run_dir / "progress.jsonl").open("w") as file:
        file.write(json.dumps({"time": time.time(), "score": 7.5}) + "\n")
while os.environ["GPUSCHED_ROLE"] != "learner" or not (run_dir / "end").exists():
    time.sleep(0.02)
