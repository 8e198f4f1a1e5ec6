"""A replica with a framework that counts: what it needs stands in needs.json beside it, by role and attempt.

It takes so much of its limit, or ends for want of it as PyTorch does. It leaves when a file `go` lies there.
"""

import json
import os
import sys
import time
import types
from pathlib import Path

from gpusched.frameworks import recorder
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework

HERE = Path(sys.argv[1])


def main() -> int:
    needs = json.loads((HERE / "needs.json").read_text())[os.environ["GPUSCHED_ROLE"]]
    limit = int(os.environ["GPUSCHED_MEMORY_LIMIT_MIB"])
    with (HERE / "limits.txt").open("a") as file:
        file.write(f"{os.environ['GPUSCHED_REPLICA']} {os.environ['GPUSCHED_ATTEMPT']} {limit}\n")
    if needs > limit:
        print(f"torch.OutOfMemoryError: CUDA out of memory. {needs} MiB are needed", flush=True)
        return 1
    peaks = Peaks(needs << 20, needs << 20)
    framework = Framework(
        name="measuredframe", title="", limiter=lambda _: None, when_started=lambda call: call(), peaks=lambda: peaks
    )
    sys.modules["measuredframe"] = types.ModuleType("measuredframe")
    sys.modules["measuredframe"].__version__ = "1.2"  # type: ignore[attr-defined]
    recorder.PAUSE_S = 0.2
    recorder.record_peaks(framework)
    while not (HERE / "go").exists():
        time.sleep(0.02)
    return 0


sys.exit(main())
