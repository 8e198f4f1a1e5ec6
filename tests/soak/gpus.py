"""The GPUs of the stand-in library whose state the soak changes while the daemon and the jobs run."""

from pathlib import Path
from typing import Final

from tests.stand_in.library import StandIn, StandInHost

__all__ = ["COUNT", "PLANNABLE_MIB", "Gpus"]

COUNT: Final = 4
TOTAL_MIB: Final = 16160
PLANNABLE_MIB: Final = TOTAL_MIB - TOTAL_MIB * 2 // 100  # 2 % of headroom
GPU_IS_LOST: Final = 15
LIBRARY_MISMATCH: Final = 18


class Gpus:
    """What the library answers. Each change is one replacement of the scenario file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.foreign: dict[int, tuple[int, int]] = {}  # device: (pid, MIB)
        self.overrun: dict[int, tuple[int, int]] = {}
        self.lost: set[int] = set()
        self.hanging: set[int] = set()
        self.mismatch = False
        self.events: list[str] = []
        self.host: StandInHost = StandIn(folder).host(self._scenario())

    @staticmethod
    def uuid(index: int) -> str:
        return f"GPU-{0xCAFE0000 + index:08x}-5ca1-ab1e-0000-00000000da7a"

    def apply(self) -> None:
        """Have the library answer by the state of this object from now on."""
        self.host.change(self._scenario())

    def troubled(self) -> set[int]:
        """Devices that are lost or hang now."""
        return self.lost | self.hanging

    def _scenario(self) -> str:
        lines = [f"gpus {COUNT}", "set * used 0"]
        for index in range(COUNT):
            users = [uses[index] for uses in (self.foreign, self.overrun) if index in uses]
            lines.append(f"set {index} used {min(sum(mib for _, mib in users), TOTAL_MIB)}")
            lines += [f"process {index} C {pid} {mib}" for pid, mib in users]
        lines += [f"fault * {index} {GPU_IS_LOST}" for index in sorted(self.lost)]
        lines += [f"fault nvmlDeviceGetMemoryInfo_v2 {index} sleep 20" for index in sorted(self.hanging)]
        if self.mismatch:
            lines += [
                f"fault nvmlInitWithFlags * {LIBRARY_MISMATCH}",
                f"fault nvmlDeviceGetCount_v2 * {LIBRARY_MISMATCH}",
            ]
        return "\n".join([*lines, *self.events, ""])
