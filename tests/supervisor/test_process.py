"""How the processes of a job are found, ended and told from others, by the parts that do so."""

import builtins
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpusched.execution.spec import Start
from gpusched.linux import processes
from gpusched.linux.processes import become_subreaper, below, has_children, kill_descendants, still_below
from gpusched.supervisor.process import Children, ProcessExit
from tests.patience import PATIENCE_S, until
from tests.supervisor.specs import python, replica

CHANGING = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        while True:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
time.sleep(1000)
"""
"""Four processes that change their pids and sessions as fast as the kernel lets them."""


FORKING = """
import os
if os.fork() == 0:
    while True:
        if os.fork() != 0:
            os._exit(0)
"""
"""It ends, and leaves in its session a process whose pid changes as fast as the kernel lets it."""

DEBUGGER = """
import ctypes, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
PTRACE_SEIZE = 0x4206
print(ptrace(PTRACE_SEIZE, int(sys.stdin.readline()), 0, 0), flush=True)
sys.stdin.readline()
"""


def alone(action: Callable[[], Any]) -> Any:
    """Return what `action` returns in a forked process that has no other children, and keeps none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            become_subreaper()
            os.write(writer, json.dumps(action()).encode())
            code = 0
        finally:
            while not kill_descendants(PATIENCE_S):
                continue
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        content = answer.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(content)


def start(children: Children, argv: tuple[str, ...]) -> int:
    nothing = os.open(os.devnull, os.O_RDWR)
    (pid,) = children.spawn([Start(spec=replica("part.0", argv), env=dict(os.environ), streams=(nothing,) * 3)])
    assert isinstance(pid, int)
    return pid


class Opened:
    """Counts what is opened of /proc: by it the cost of a look grows, on any host."""

    def __init__(self) -> None:
        self.pids: set[int] = set()
        vars(processes)["open"] = self._open
        self._listdir = os.listdir
        os.listdir = self._listed  # type: ignore[assignment]

    def _open(self, path: str, mode: str = "r", **options: Any) -> Any:
        self._note(path)
        return builtins.open(path, mode, **options)  # noqa: PTH123 (in the place of the module's own)

    def _listed(self, path: str) -> list[str]:
        self._note(path)
        return self._listdir(path)

    def _note(self, path: str) -> None:
        words = path.split("/")
        self.pids.add(int(words[2]) if len(words) > 2 else 0)


def ignores_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (ignored,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    return bool(ignored >> (signal.SIGTERM - 1) & 1)


def test_while_a_job_stops_no_other_process_of_the_host_is_looked_at() -> None:
    def look() -> list[list[int]]:
        children = Children()
        pid = start(children, python("grandchildren.py", "leave"))
        until(lambda: children.reap() != [], "the first process has ended")
        left = below(os.getpid())
        until(lambda: all(ignores_sigterm(one.pid) for one in left), "both ignore SIGTERM")
        opened = Opened()
        for _ in range(3):
            children.ask(pid, alone=False)
            children.reap()
            children.ask_strays()
        return [sorted(opened.pids), sorted({os.getpid(), *(one.pid for one in left)})]

    opened, ours = alone(look)

    assert opened == ours
    assert len(ours) == 3


def test_processes_are_found_by_what_each_thread_started() -> None:
    script = "import subprocess, threading; threading.Thread(target=subprocess.run, args=(['sleep', '1000'],)).start()"

    def look() -> int:
        start(Children(), (sys.executable, "-c", script))
        until(lambda: len(below(os.getpid())) == 2, "both are found")
        return len(still_below(os.getpid(), set()))

    assert alone(look) == 2


def test_where_the_kernel_does_not_list_children_all_processes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> int:
        start(Children(), ("sh", "-c", "sleep 1000 & wait"))
        until(lambda: len(below(os.getpid())) == 2, "both run")
        exists = os.path.exists
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).endswith("children") and exists(path))
        return len(below(os.getpid()))

    assert alone(look) == 2


def reaped() -> bool:
    """Wait for what has ended and was inherited: 32,768 of these would take all the pids of this host."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return True


def test_what_changes_its_pid_all_the_while_is_killed() -> None:
    def kill() -> list[int]:
        pid = start(Children(), (sys.executable, "-c", CHANGING))
        until(lambda: reaped() and len(below(os.getpid())) > 3, f"all below {pid} run")
        gone = kill_descendants(PATIENCE_S)
        return [gone, has_children()]

    assert alone(kill) == [True, False]


def test_what_changed_its_pid_before_each_look_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill() -> list[bool]:
        start(Children(), ("sleep", "1000"))
        walk, looks = processes._walk, iter(range(3))
        monkeypatch.setattr(processes, "_walk", lambda *given: () if next(looks, None) is not None else walk(*given))
        gone = kill_descendants(PATIENCE_S)
        return [gone, has_children()]

    assert alone(kill) == [True, False]


def test_what_left_a_process_that_changes_its_pid_has_not_ended_before_that_has() -> None:
    def look() -> list[bool]:
        children = Children()
        start(children, (sys.executable, "-S", "-c", FORKING))
        exits: list[ProcessExit] = []
        while not exits:
            exits += children.reap()
        assert children.strays() == ""
        for _ in range(1500):
            exits += children.reap()
        return [bool(one.left) for one in exits]

    assert alone(look) == [True]


def test_what_a_debugger_outside_holds_when_it_is_dead_is_gone() -> None:
    argv = [sys.executable, "-S", "-c", DEBUGGER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as debugger:
        asked, told = debugger.stdin, debugger.stdout
        assert asked is not None
        assert told is not None

        def kill() -> list[bool]:
            os.write(asked.fileno(), b"%d\n" % start(Children(), ("sleep", "1000")))
            holds = os.read(told.fileno(), 1) == b"0"
            return [holds, kill_descendants(PATIENCE_S), has_children()]

        try:
            holds, gone, is_child = alone(kill)
        finally:
            debugger.kill()
    if not holds:
        pytest.skip("this host lets nobody debug what is not below it")
    assert (gone, is_child) == (True, True)


def kill_all_but_one(program: str) -> list[bool]:
    living = start(Children(), ("sh", "-c", "sleep 1000 & wait"))
    start(Children(), (sys.executable, "-c", program))
    until(lambda: reaped() and len(below(os.getpid())) > 5, "all run")
    gone = kill_descendants(PATIENCE_S, lambda one: one.pid == living)
    spared = below(os.getpid())
    for one in spared:
        os.kill(one.pid, signal.SIGKILL)
    until(lambda: reaped() and not has_children(), "nothing else was left")
    return [gone, [one.parent for one in spared] == [os.getpid(), living]]


def test_all_but_what_is_spared_is_killed_though_it_changes_its_pid() -> None:
    assert alone(lambda: kill_all_but_one(CHANGING)) == [True, True]


def test_all_but_what_is_spared_is_killed_where_the_kernel_does_not_list_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill() -> list[bool]:
        exists = os.path.exists
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).endswith("children") and exists(path))
        return kill_all_but_one("import os, time; [os.fork() for _ in range(2)]; time.sleep(1000)")

    assert alone(kill) == [True, True]
