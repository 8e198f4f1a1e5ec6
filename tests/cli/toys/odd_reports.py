"""A learner whose reports are hard to draw: no number, times that go back, control characters; actors just wait."""

import os
import sys
import time
from pathlib import Path

if os.environ["GPUSCHED_ROLE"] == "actor":
    time.sleep(600)
run_dir = Path(os.environ["GPUSCHED_RUN_DIR"])
(run_dir / "frame.txt").write_bytes(b"a game \xff\n")
with (run_dir / "progress.jsonl").open("w") as file:
    file.write('{"time": 900, "score": NaN, "steps_per_s": 1e999, "step": ' + "9" * 400 + "}\n")
    file.write('{"time": 900, "score": 1.0}\n{"time": 3, "score": 2.0}\n' + "[" * 5000 + "\n")
    file.write('{"time": 901, "score": 7.0, "note": "odd \\u001b[2J note"}\n{"note": "\\ud800"}\n')
while not (run_dir / "seen").exists():
    time.sleep(0.02)
sys.exit(0)
