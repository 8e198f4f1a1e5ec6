"""Whether a process was killed for want of the host's memory, by the kernel's counter.

A SIGKILL not sent by gpusched came from the kernel's OOM killer if a counter rose: `oom_kill` of this process's memory
cgroup, which its children share: memory.events (v2, cgroup-v2.rst) or memory.oom_control (v1, memory.rst). Where there
is neither, it is that of the whole host, in /proc/vmstat. What ends with a code is in supervisor/memory_errors.py.
"""

from collections.abc import Callable
from pathlib import Path

__all__ = ["OomKills", "find_counter", "read_counter"]


class OomKills:
    """OOM kills that no replica's end has been put down to yet, the older ones forgotten.

    `read` returns the counter, or None if it cannot be read. Call `sample` every few seconds: a kill is forgotten after
    two samples, so that an OOM kill of another process long ago does not explain a SIGKILL sent by a person now.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._explained = self._sampled = read() or 0

    def sample(self) -> None:
        """Forget the kills that were there at the last sample."""
        self._explained = max(self._explained, self._sampled)
        self._sampled = self._read() or 0

    def claim(self) -> bool:
        """Return whether a kill is left to explain one process's end by SIGKILL, and use it up."""
        if (self._read() or 0) <= self._explained:
            return False
        self._explained += 1
        return True


def read_counter(path: Path) -> int | None:
    """Return the number on the line `oom_kill N` of `path`, or None if there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def find_counter(proc: Path = Path("/proc")) -> Path:
    """Return the file that counts the OOM kills nearest to this process."""
    try:
        mounts = (proc / "self" / "mountinfo").read_text().splitlines()
        groups = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return proc / "vmstat"
    for _, controllers, group in groups:
        v2 = controllers == ""
        if v2 or "memory" in controllers.split(","):
            name = "memory.events" if v2 else "memory.oom_control"
            for folder in _mounted(mounts, group, v2=v2):
                if read_counter(folder / name) is not None:
                    return folder / name
    return proc / "vmstat"


def _mounted(mounts: list[str], group: str, *, v2: bool) -> list[Path]:
    """Return where the hierarchy of `group` is mounted: fields 4, 5 and, after `-`, type and options (proc(5))."""
    found = []
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == ("cgroup2" if v2 else "cgroup") and (v2 or "memory" in options.split(",")):
            root, point = before.split(" ")[3:5]
            inside = group.removeprefix(root.rstrip("/")).lstrip("/")
            found.append(Path(point) / inside)
    return found
