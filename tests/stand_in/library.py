"""Builds the stand-in libnvidia-ml.so.1 and puts real subprocesses on a host whose GPUs a scenario describes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.patience import DRIVER_PATIENCE_S, PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = Path(__file__).parent / "nvml.c"

FOUR_V100: Final = """
gpus 4
set * used 0
set 1 util 37
set 1 temp 63
set 1 power 187654
set 1 ecc 2
set 2 compute 3
set 3 persistence 0
set 3 fan 33
"""
EIGHT_A100: Final = """
driver 550.54.15
cuda 12040
gpus 8
set * name NVIDIA A100-SXM4-40GB
set * total 40960
set * reserved 424
set * limit 400000
set * mig 0
set 5 util 98
mig 0 19968 12
mig 0 9856 12
mig 0 9856 3000
mig 6 4864 1
"""
MIXED: Final = """
driver 470.82.01
cuda 11040
gpus 4
set 0 name NVIDIA A100-PCIE-40GB
set 0 total 40536
set 0 mig 0
set 1 name NVIDIA GeForce RTX 2080 Ti
set 1 total 11019
set 1 used 487
set 1 fan 27
set 1 ecc -1
set 1 compute 0
set 2 name Tesla K80
set 2 total 11441
set 2 util -1
set 2 power 61000
set 2 limit 149000
set 3 name NVIDIA GB10
set 3 total -1
set 3 limit -1
"""
SIXTY_FOUR: Final = "gpus 64\n" + "".join(
    f"set {gpu} util {gpu}\nset {gpu} used {100 * gpu}\nset {gpu} temp {30 + gpu}\n" for gpu in range(64)
)


class StandIn:
    """The two libraries, built once: one of today, and one of 2019 (R418) that lacks the newer calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name, flags in {"today": [], "r418": ["-DR418"]}.items():
            (folder / name).mkdir()
            library = folder / name / "libnvidia-ml.so.1"
            argv = ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-O1", *flags, "-Wl,-soname,libnvidia-ml.so.1", "-o"]
            subprocess.run([*argv, str(library), str(SOURCE)], check=True)

    def host(self, scenario: str, *, age: str = "today", driver_patience_s: float = DRIVER_PATIENCE_S) -> "StandInHost":
        """Return a host of that scenario; `age` is `today` or `r418`."""
        path = self._folder / f"scenario-{len(list(self._folder.iterdir()))}"
        path.write_text(scenario)
        return StandInHost(path, self._folder / age, driver_patience_s)


class StandInHost:
    """A host whose NVML answers what a scenario says, for real subprocesses (the loader reads the path at start)."""

    def __init__(self, scenario: Path, library: Path, driver_patience_s: float) -> None:
        self.variables = {"LD_LIBRARY_PATH": str(library), "NVML_STAND_IN": str(scenario)}
        self.env = os.environ | self.variables | {"GPUSCHED_DRIVER_PATIENCE": str(driver_patience_s)}
        self._scenario = scenario

    def change(self, scenario: str) -> None:
        """Have it answer by this scenario from now on, also in processes that have NVML open."""
        new = self._scenario.with_suffix(".new")
        new.write_text(scenario)
        new.replace(self._scenario)

    def run(
        self, argv: Sequence[str], *, env: dict[str, str] | None = None, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        """Run `python argv...` on the host and return what it printed."""
        return subprocess.run(
            [sys.executable, *argv],
            env=self.env | (env or {}),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def json(self, argv: Sequence[str], *, env: dict[str, str] | None = None) -> Any:
        """Run `python argv...`, which must succeed, and return the JSON it printed."""
        told = self.run(argv, env=env)
        assert told.returncode == 0, told.stdout + told.stderr
        return json.loads(told.stdout)
