"""What /proc says of the soak's processes; nothing of the product is asked."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CONTEXT_MIB", "Process", "daemon_pid", "processes", "read_process", "shares"]

CONTEXT_MIB: Final = 450


@dataclass(frozen=True)
class Process:
    """One process; `token`: the job that it belongs to, `role`: daemon, job (supervisors and guards), or ""."""

    pid: int
    parent: int
    state: str
    command: str
    environ: dict[str, str]

    @property
    def token(self) -> str:
        return self.environ.get("SOAK_TOKEN", "")

    @property
    def role(self) -> str:
        if "gpusched.daemon" in self.command:
            return "daemon"
        return "job" if "gpusched.supervisor " in self.command else ""  # not the fork server

    @property
    def run_dir(self) -> str:
        """The directory of the job whose supervisor or guard this is."""
        words = self.command.split()
        return next((word for word in words if "/jobs/" in word), "")


def processes(root: Path | None = None) -> Iterator[Process]:
    """Yield every process that can be read; with `root` those of the soak there, and zombies, which name none."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                one = read_process(int(entry.name))
                mark = one.environ.get("SOAK_ROOT")
                if root is None or mark == str(root) or one.state == "Z" or one.run_dir.startswith(f"{root}/"):
                    yield one


def daemon_pid(state: Path) -> int:
    """The pid of the daemon of a state directory by its lock file; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        one = read_process(int((state / "daemon.lock").read_text()))
        if one.state not in ("Z", "X") and one.role == "daemon":
            return one.pid
    return 0


def shares(seen: Iterable[Process]) -> dict[str, dict[tuple[str, str], tuple[int, int]]]:
    """By device and (job, replica): the share in MiB that a process's environment grants it, and a pid of it."""
    found: dict[str, dict[tuple[str, str], tuple[int, int]]] = {}
    for one in seen:
        devices, limit = one.environ.get("CUDA_VISIBLE_DEVICES"), one.environ.get("GPUSCHED_MEMORY_LIMIT_MIB")
        if devices and limit:
            replica = one.environ["GPUSCHED_JOB"], one.environ["GPUSCHED_REPLICA"]
            for device in devices.split(","):
                found.setdefault(device, {})[replica] = int(limit) + CONTEXT_MIB, one.pid
    return found


def read_process(pid: int) -> Process:
    """Read one process. Raises OSError if it is gone; of a zombie the environment is empty."""
    base = Path(f"/proc/{pid}")
    state, parent = (base / "stat").read_text().rpartition(")")[2].split()[:2]
    command = (base / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    environ: dict[str, str] = {}
    if state not in ("Z", "X"):
        with contextlib.suppress(OSError):
            entries = (base / "environ").read_bytes().split(b"\0")
            environ = dict(one.decode(errors="replace").split("=", 1) for one in entries if b"=" in one)
    return Process(pid, int(parent), state, command, environ)
