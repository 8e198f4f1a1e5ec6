"""Run one of the scripts of tests/gpu that fill their share, and hold it until RUN_DIR/end.FRAMEWORK is there.

`python -m bench.gpu.fill torch`
"""

import os
import runpy
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "tests" / "gpu" / "scripts"


class _Gate:
    """In the place of the standard input, at whose end the script ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        while not self._path.exists():
            time.sleep(0.05)
        return ""


if __name__ == "__main__":
    framework = sys.argv[1]
    sys.stdin = _Gate(Path(os.environ["GPUSCHED_RUN_DIR"], f"end.{framework}"))
    runpy.run_path(str(SCRIPTS / f"fill_{framework}.py"), run_name="__main__")
