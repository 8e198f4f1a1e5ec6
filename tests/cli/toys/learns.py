"""A learner whose score rises whenever RUN_DIR/next is there, and that draws while it is watched; actors wait."""

import json
import os
import time
from pathlib import Path

run_dir, score = Path(os.environ["GPUSCHED_RUN_DIR"]), 0
while True:
    if os.environ["GPUSCHED_ROLE"] == "learner" and (run_dir / "next").exists():
        (run_dir / "next").unlink()
        if (run_dir / "watched").exists():
            (run_dir / "frame.txt").write_text(f"game {score}")
        with (run_dir / "progress.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "step": 100 * score, "score": score}) + "\n")
        score += 1
    time.sleep(0.02)
