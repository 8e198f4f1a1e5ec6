"""What Linux shows and does about processes and Python does not wrap: prctl, /proc/PID/stat, the boot's identity.

The guard lives on this module for hours, so it imports nothing but what the interpreter holds anyway, and ctypes.
It must not know jobs, replicas or files of ours.
"""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Container, Iterator

__all__ = [
    "GUARD_GONE",
    "STOP_PASSED_ON",
    "Process",
    "become_subreaper",
    "began",
    "below",
    "boot_id",
    "boot_ticks",
    "command_line",
    "descendants",
    "die_with",
    "halted",
    "has_children",
    "inherited",
    "kill_descendants",
    "parent",
    "seconds_since_boot",
    "set_death_signal",
    "start_time",
    "still_below",
    "wake",
]

GUARD_GONE = signal.SIGUSR1
"""What the kernel sends to the supervisor when the guard dies."""

STOP_PASSED_ON = signal.SIGUSR2
"""What the guard sends to the supervisor for a SIGTERM of its own, which the supervisor may have had as well."""

_PR_SET_PDEATHSIG = 1  # prctl(2), linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.5
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl  # bound once: a forked child must not load libraries


def become_subreaper() -> None:
    """Make orphaned descendants, even those that called setsid, children of this process. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_death_signal(number: int) -> None:
    """Have the kernel send signal `number` to this process when the thread that forked it ends. Raises OSError.

    The parent may have ended before: compare os.getppid() afterwards (PR_SET_PDEATHSIG(2const)).
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, which must be `parent`: ends it now if it is gone."""
    set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if _PRCTL(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def start_time(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None if it is gone or a zombie.

    Together with the pid and boot_id() it names one process for ever (field 22 of /proc/PID/stat, proc(5)).
    """
    fields = _stat(pid)
    return None if fields is None or _is_dead(fields) else int(fields[19])


def began(pid: int) -> float | None:
    """Return when a process began, in Unix seconds; None if it is gone."""
    ticks = start_time(pid)
    if ticks is None:
        return None
    return time.time() - seconds_since_boot() + ticks / os.sysconf("SC_CLK_TCK")


def parent(pid: int) -> int | None:
    """Return the parent of a process; None if that process is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or _is_dead(fields) else int(fields[1])


def owner(pid: int) -> int | None:
    """Return the uid of a process, None if it is gone."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 (pathlib is heavy)
    except OSError:
        return None


def boot_id() -> str:
    """Return the identity of this boot of the host, or an empty text where /proc does not show it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 (pathlib is heavy)
            return file.read().strip()
    except OSError:
        return ""


def seconds_since_boot() -> float:
    """Return the seconds since the host was booted, with those that it slept: what no step of the wall clock moves."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def inherited() -> list[int]:
    """Return the descriptors beyond stderr that this process was started with and passes on."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (pathlib is heavy)
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):  # noqa: PLR2004 (stderr)
                found.append(int(name))
        except OSError:  # the listing's own
            continue
    return found


class Process:
    """One process as /proc shows it: its pid, parent, process group and session; `start` in clock ticks since boot.

    `dead`: it has ended and is to be waited for.
    """

    __slots__ = ("dead", "group", "parent", "pid", "session", "start")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        self.start = int(fields[19])
        self.dead = _is_dead(fields)

    @property
    def identity(self) -> tuple[int, int]:
        """What no other process of this boot has: its pid and its start."""
        return self.pid, self.start


def _no_process(_one: Process) -> bool:
    return False


def below(pid: int, spared: Callable[[Process], bool] = _no_process) -> list[Process]:
    """Return all processes below `pid`, zombies left out, parents before their children; read by what each started.

    What is `spared` is left out as well, with all below it. What changes its pid at this moment, as a program that
    forks and ends, may be missing: see still_below.
    """
    return list(_walk(pid, spared))


def still_below(
    pid: int, seen_dead: set[tuple[int, int]], spared: Callable[[Process], bool] = _no_process
) -> list[Process]:
    """Return the same as `below` for `pid`, a subreaper, with its dead children: nothing at all if nothing is left.

    A child that has ended may have left another, which came to the list of children after that was read. So the dead
    are returned once, and kept in `seen_dead`: what they left is found by the next call.
    """
    found = list(_walk(pid, spared))
    known = {one.pid for one in found}
    for child in _lister(pid)(pid):
        fields = None if child in known else _stat(child)
        if fields is None:
            continue
        one = Process(child, fields)
        if one.dead and one.identity not in seen_dead:
            seen_dead.add(one.identity)
            found.append(one)
        elif not one.dead and not spared(one):
            found.append(one)
    return found


def _walk(pid: int, spared: Callable[[Process], bool]) -> Iterator[Process]:
    """Yield the processes of `below` as they are found, so that none has much time to change before it is signalled."""
    children, seen = _lister(pid), {pid}
    waiting = [*children(pid)]
    for child in waiting:
        fields = None if child in seen else _stat(child)
        if fields is None or int(fields[1]) not in seen:  # the pid is another's by now
            continue
        seen.add(child)
        one = Process(child, fields)
        if not (one.dead or spared(one)):
            yield one
            waiting += children(child)


def _lister(pid: int) -> Callable[[int], list[int]]:
    """Return what gives the children of a process: the kernel's lists, or, where it has none, one reading of /proc."""
    if os.path.exists(f"/proc/{pid}/task/{pid}/children"):  # noqa: PTH110 (a kernel with CONFIG_PROC_CHILDREN)
        return _children
    table: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 (pathlib is heavy)
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields is not None:
            table.setdefault(int(fields[1]), []).append(int(entry))
    return lambda parent: table.get(parent, [])


def _children(pid: int) -> list[int]:
    """Return the pids of what the threads of a process have started and not waited for; none if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 (pathlib is heavy)
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 (pathlib is heavy)
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return found


def descendants(pid: int, spared: Callable[[Process], bool] = _no_process) -> list[int]:
    """Return the pids of `below`."""
    return [one.pid for one in below(pid, spared)]


def command_line(pid: int) -> str:
    """Return the program of a process and its arguments; its name where it has none, an empty text if it is gone."""
    for name in ("cmdline", "comm"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 (pathlib is heavy)
                text = file.read(4096).replace(b"\0", b" ").strip()
        except OSError:
            continue
        if text:
            return text.decode(errors="replace")
    return ""


def boot_ticks() -> int:
    """Return the present moment as Process.start has it: in clock ticks since boot."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def wake(supervisor: int) -> None:
    """Have a supervisor and the guard above it go on, if they are halted, as by `kill -STOP $PPID` in a job."""
    for pid in (parent(supervisor), supervisor):
        if pid is not None and pid > 1:
            _send(pid, signal.SIGCONT)


def has_children() -> bool:
    """Return whether this process has a child, one that has ended and was not waited for included."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def halted(pids: list[int], group: int) -> bool:
    """Return whether each of the processes that is of the process group `group` is stopped, traced or gone."""
    fields = [_stat(pid) for pid in pids]
    return all(one is None or int(one[2]) != group or one[0] in (b"T", b"t") or _is_dead(one) for one in fields)


def kill_descendants(patience_s: float, spared: Callable[[Process], bool] = _no_process) -> bool:
    """Kill all descendants of this process, a subreaper, and reap them; return whether none is left after `patience_s`.

    All are halted first, so that none starts another before it is killed. What is `spared`, and what is below it, may
    live.
    """
    deadline = time.monotonic() + patience_s
    pause_s, halted_before, seen_dead = _SHORTEST_PAUSE_S, set[tuple[int, int]](), set[tuple[int, int]]()
    while not _reap_all():
        left = _halt_below(os.getpid(), spared, halted_before)
        fresh = [one for one in left if one.identity not in halted_before]
        halted_before.update(one.identity for one in fresh)
        late = time.monotonic() > deadline
        for one in left if late or not fresh else ():
            _send(one.pid, signal.SIGKILL)
        if not (left or still_below(os.getpid(), seen_dead, spared)):
            return True
        if late:
            return _reap_all()
        if not fresh:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S) if left else _SHORTEST_PAUSE_S  # none: it changed its pid
    return True


def _halt_below(pid: int, spared: Callable[[Process], bool], before: Container[tuple[int, int]]) -> list[Process]:
    """Halt each process below `pid` that was not halted `before`, as soon as it is found; return all of them."""
    found = []
    for one in _walk(pid, spared):
        if one.identity not in before:
            _send(one.pid, signal.SIGSTOP)
        found.append(one)
    return found


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _reap_all() -> bool:
    """Wait for all children that have ended; return whether there is no other: then a subreaper has no descendant."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _is_dead(fields: list[bytes]) -> bool:
    """Return whether a process has ended; one whose first thread has is a zombie to /proc, and others may run on."""
    return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third (state) on; the second, a name, may hold any ')' itself."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (pathlib is heavy)
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
