"""A wall clock that can be stepped under real processes: a shim in C before clock_gettime, one number in a file."""

import struct
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["WallClock"]

SOURCE: Final = Path(__file__).parent / "clock.c"


class WallClock:
    """`env` has a process and all that it starts see a wall clock that step() moves. The kernel's clock stays."""

    def __init__(self, folder: Path) -> None:
        library, self._path = folder / "clock.so", folder / "clock"
        build = ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-O1", "-o", str(library), str(SOURCE)]
        subprocess.run(build, check=True)
        self._path.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._path)}

    def step(self, seconds: int) -> None:
        """Show all of them from now on a clock that is so far from the kernel's."""
        with self._path.open("r+b") as file:
            file.write(struct.pack("=q", seconds * 10**9))
