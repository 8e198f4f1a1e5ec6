"""Members that are forked from one process with their imports: the same as executed ones, whatever becomes of it."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpusched.control.messages import Jobs, ListJobs, Stop, Submit, Submitted
from gpusched.execution.directory import JobDirectory
from gpusched.linux.processes import parent, start_time
from gpusched.model.array import Array
from gpusched.model.status import ArrayStatus, ExitReason, JobState
from tests.daemon.daemons import Daemon
from tests.daemon.test_fork_server import SERVER, about, content, servers
from tests.patience import until
from tests.supervisor.specs import CHILDREN
from tests.zygote.test_zygote import ENDS

SLOW = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""
NOTE = """
import sys
with open("ran", "a") as file:
    file.write(f"{sys.argv[1]} {'preloaded' in sys.modules}\\n")
"""
CPUS = len(os.sched_getaffinity(0))
WAIT = "import signal\nsignal.pause()"


class Place:
    """A directory with modules and programs, of which arrays are queued."""

    def __init__(self, daemon: Daemon, directory: Path) -> None:
        self.daemon, self.directory = daemon, directory
        directory.mkdir()
        self.write("preloaded", "")
        self.write("note", NOTE)
        self.write("wait", WAIT)
        (directory / "tell_all.py").write_text((CHILDREN / "tell_all.py").read_text())

    def write(self, module: str, text: str) -> None:
        (self.directory / f"{module}.py").write_text(text)

    def array(
        self,
        *words: str,
        count: int = 1,
        at_most: int | None = 2,
        preload: tuple[str, ...] = ("preloaded",),
        **more: Any,
    ) -> str:
        """Queue an array of a command of Python; {index} in its words is the number of the member."""
        return self.job(*words, preload=preload, array=Array(count=count, at_most=at_most), **more)

    def job(self, *words: str, preload: tuple[str, ...], **more: Any) -> str:
        """Queue a command of Python as one job."""
        asked = self.daemon.submission(sys.executable, *words, cwd=str(self.directory), **more)
        preloading = replace(asked, workload=replace(asked.workload, preload=preload))
        answer = self.daemon.ask(Submit(job=preloading))
        assert isinstance(answer, Submitted)
        return answer.id

    def ran(self) -> list[tuple[str, bool]]:
        """Which members have noted that they ran, and whether the module was there already."""
        path = self.directory / "ran"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(number, known == "True") for number, known in lines]

    def go(self) -> None:
        (self.directory / "go").touch()


@pytest.fixture
def place(daemon: Daemon, tmp_path: Path) -> Place:
    daemon.start()
    return Place(daemon, tmp_path / "place")


def own_server(daemon: Daemon) -> int:
    """The fork server of the one array that has one."""
    found = [pid for pid in servers(daemon) if b"preloaded\0" in content(pid, "cmdline")]
    assert len(found) == 1, found
    return found[0]


def ended(daemon: Daemon, job: str, count: int) -> None:
    (over,) = daemon.ended(job)
    assert over.array is not None
    assert replace(over.array, at_most=None) == ArrayStatus(count=count, succeeded=count), daemon.log


def test_members_are_forked_and_each_runs_once(place: Place, daemon: Daemon) -> None:
    job = place.array("note.py", "{index}", count=8, at_most=3)
    ended(daemon, job, 8)
    assert sorted(place.ran()) == [(str(number), True) for number in range(8)]
    until(lambda: not servers(daemon), "its fork server ends with it")


@pytest.mark.parametrize("words", [("-m", "wait"), ("wait.py",), ("-P", "wait.py")], ids=["module", "script", "safe"])
def test_guard_supervisor_and_command_have_what_executed_ones_have(
    place: Place, daemon: Daemon, words: tuple[str, ...]
) -> None:
    preload = ("uuid",) if "-P" in words else ("preloaded",)
    alone = place.job(*words, preload=preload)
    array = place.array(*words, preload=preload)
    executed, forked = processes(daemon, alone), processes(daemon, f"{array}[0]")
    assert parent(executed[0]) == daemon.pid
    assert SERVER in content(parent(forked[0]) or 0, "cmdline")
    for one, other in zip(executed, forked, strict=True):
        expected, found = about(daemon, alone, one), about(daemon, f"{array}[0]", other, array=array)
        for told in (expected, found):
            environ = told["environ"]
            assert isinstance(environ, list)
            told["environ"] = [line for line in environ if not line.startswith("GPUSCHED_INDEX=")]
        assert found == expected


def processes(daemon: Daemon, job: str) -> tuple[int, int, int]:
    """The pids of a running job's guard, supervisor and command."""
    until(lambda: running(daemon, job), "it runs")
    supervisor, command = daemon.job(job).supervisor_pid, daemon.job(job).replicas[0].pid
    assert supervisor is not None
    assert command is not None
    until(lambda: b"wait" in content(command, "cmdline"), "it is the command")
    assert parent(command) == supervisor
    guard = parent(supervisor)
    assert guard is not None
    return guard, supervisor, command


def running(daemon: Daemon, member: str) -> bool:
    answer = daemon.ask(ListJobs(ids=(member,)))
    return isinstance(answer, Jobs) and answer.jobs[0].state is JobState.RUNNING


@pytest.mark.parametrize("words", [("-m", "tell_all"), ("tell_all.py",), ("-u", "tell_all.py")])
def test_a_forked_member_finds_what_an_executed_one_finds(place: Place, daemon: Daemon, words: tuple[str, ...]) -> None:
    told = []
    for preload in ((), ("preloaded",)):
        job = place.array(*words, "told", "a b", preload=preload, environ=daemon.env | {"LONG": "x" * 100_000})
        ended(daemon, job, 1)
        path = place.directory / "told"
        text = path.read_text().replace(job, "JOB").replace(str(place.directory / "told"), "told")
        told.append(json.loads(text))
        path.unlink()
    assert [one.pop("preloaded") for one in told] == [False, True]
    for one in told:
        del one["environ"]["GPUSCHED_ENDPOINT"], one["signals"]  # as above
        one["proc environ"] = [line for line in one["proc environ"] if not line.startswith("GPUSCHED_ENDPOINT=")]
    assert told[0] == told[1]


def test_a_forked_member_ends_as_an_executed_one(place: Place, daemon: Daemon) -> None:
    for number, (text, _) in enumerate(ENDS.values()):
        place.write(f"ends_{number}", text)
    ends, said = [], []
    for preload in ((), ("preloaded",)):
        job = place.array("ends_{index}.py", count=len(ENDS), preload=preload, at_most=None)
        daemon.ended(job)
        members = [daemon.job(f"{job}[{number}]") for number in range(len(ENDS))]
        ends.append([member.replicas[0].exit for member in members])
        logs = [Path(member.run_dir, "logs", "command.0.log").read_text() for member in members]
        said.append([[line for line in log.splitlines() if not line.startswith("--- ")] for log in logs])
    assert ends[0] == ends[1] == [reason for _, reason in ENDS.values()]
    assert said[0] == said[1]


def test_while_it_imports_members_wait_with_what_they_hold_and_nothing_else_does(place: Place, daemon: Daemon) -> None:
    place.write("slow", SLOW)
    job = place.array("note.py", "{index}", count=40, at_most=None, preload=("preloaded", "slow"))
    until(lambda: daemon.job(job).note == "preloading slow", "it is told what is waited for")
    (other,) = daemon.ended(daemon.submit("true"))
    assert other.state is JobState.SUCCEEDED
    assert daemon.job(f"{job}[0]").state is JobState.STARTING
    found = daemon.job(job).array
    assert found is not None
    assert found.waiting >= 40 - 4 * CPUS, "few are prepared meanwhile"
    assert not place.ran()
    place.go()
    ended(daemon, job, 40)
    assert daemon.job(job).note is None
    assert sorted(place.ran(), key=lambda one: int(one[0])) == [(str(number), True) for number in range(40)]


def test_a_stop_does_not_wait_for_the_imports(place: Place, daemon: Daemon) -> None:
    place.write("slow", SLOW)
    job = place.array("note.py", "{index}", count=4, preload=("preloaded", "slow"))
    until(lambda: daemon.job(job).note == "preloading slow", "it is told what is waited for")
    server = own_server(daemon)
    daemon.ask(Stop(ids=(f"{job}[0]",)))
    until(lambda: daemon.job(f"{job}[0]").state is JobState.CANCELLED, "one member is stopped")
    daemon.ask(Stop(ids=(job,)))
    (over,) = daemon.ended(job)
    assert over.state is JobState.CANCELLED
    until(lambda: start_time(server) is None, "the fork server ends, though it is still importing")
    assert not place.ran()


def test_an_import_that_goes_on_ends_with_the_daemon(place: Place, daemon: Daemon) -> None:
    place.write("slow", SLOW)
    job = place.array("note.py", "{index}", count=4, preload=("preloaded", "slow"))
    until(lambda: daemon.job(job).note == "preloading slow", "it is told what is waited for")
    server = own_server(daemon)
    daemon.kill()
    until(lambda: start_time(server) is None, "the fork server ends")
    daemon.start()
    place.go()
    ended(daemon, job, 4)


THREADS_OF_FORKS = """
import os, threading, time

def begin():
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

os.register_at_fork(after_in_child=begin)
"""
REFUSED = {
    "a module that fails": ("1/0", "import odd: ZeroDivisionError: division by zero"),
    "a module that ends": ("import sys\nsys.exit(3)", "import odd: SystemExit: 3"),
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "after the import of odd it cannot be forked: it has left 1 more thread",
    ),
    "an open file": ("file = open(__file__)", "the imports leave a file open: "),
    "a process": (
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'])",
        "the imports leave a process running",
    ),
    "shared memory": ("import mmap\nshared = mmap.mmap(-1, 4096)", "the imports leave memory that forks would share"),
    "a directory": (
        "import tempfile\ndirectory = tempfile.TemporaryDirectory()",
        "the imports leave a temporary directory that the first of the forks would remove",
    ),
    "a umask": ("import os\nos.umask(0)", "the imports leave another umask"),
    "threads of forks": (THREADS_OF_FORKS, "the imports leave hooks that start a thread in each fork"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_after_an_import_that_forbids_forks_members_import_for_themselves(
    place: Place, daemon: Daemon, text: str, why: str
) -> None:
    place.write("odd", text)
    job = place.array("note.py", "{index}", count=3, preload=("odd",))
    ended(daemon, job, 3)
    assert sorted(place.ran()) == [(str(number), False) for number in range(3)]
    assert f"nothing is preloaded: {why}" in (daemon.job(job).message or "")
    assert why in daemon.log
    assert not [pid for pid in daemon.command.running() if b"sleep" in content(pid, "cmdline")], "it left no process"


def test_why_members_failed_comes_before_why_nothing_is_preloaded(place: Place, daemon: Daemon) -> None:
    place.write("odd", "1/0")
    place.write("fails", "raise SystemExit(3)")
    (over,) = daemon.ended(place.array("fails.py", count=2, preload=("odd",)))
    assert over.message == "2 failed; nothing is preloaded: import odd: ZeroDivisionError: division by zero"


def test_in_a_locale_that_is_not_utf_8_nothing_is_imported_in_advance(place: Place, daemon: Daemon) -> None:
    place.write("slow", SLOW)
    environ = daemon.env | {"LC_ALL": "de_DE.ISO-8859-1", "PYTHONWARNINGS": "ignore"}
    job = place.array("wait.py", preload=("slow",), environ=environ)
    until(lambda: daemon.job(job).message == "nothing is preloaded: the locale is not UTF-8", "the reason is shown")
    assert not [pid for pid in servers(daemon) if b"slow" in content(pid, "cmdline")]


DIES = {
    "by a signal": "import os\nos.kill(os.getpid(), 11)",
    "at once": "import os\nos._exit(7)",
    "it closes all": "import os, time\nos.closerange(3, 99)\ntime.sleep(600)",
    "it speaks to us": "import os, sys\nos.write(int(sys.argv[1]), b'no message')",
}


@pytest.mark.parametrize("text", DIES.values(), ids=DIES.keys())
def test_an_import_that_ends_the_fork_server_costs_no_member(place: Place, daemon: Daemon, text: str) -> None:
    place.write("odd", f"import sys\nif 'fork_server' in ' '.join(sys.orig_argv):\n    exec({text!r})")
    job = place.array("note.py", "{index}", count=3, preload=("odd",))
    ended(daemon, job, 3)
    assert sorted(number for number, _ in place.ran()) == ["0", "1", "2"]


def test_a_file_with_the_name_of_a_module_that_gpusched_needs_is_still_what_members_import(
    place: Place, daemon: Daemon
) -> None:
    place.write("selectors", "mine = True")
    place.write("uses", "import selectors\nopen('mine', 'w').write(str(hasattr(selectors, 'mine')))")
    job = place.array("-m", "uses", preload=("preloaded",))
    ended(daemon, job, 1)
    assert (place.directory / "mine").read_text() == "True"
    assert "selectors.py has the name of a module that gpusched needs" in (daemon.job(job).message or "")


def test_whenever_fork_server_or_daemon_is_killed_each_member_runs_once(place: Place, daemon: Daemon) -> None:
    job = place.array("note.py", "{index}", count=40, at_most=None)
    for number, victim in ((3, "server"), (10, "daemon"), (18, "server"), (26, "daemon")):
        until(lambda: len(place.ran()) >= number, f"{number} have run")  # noqa: B023
        if victim == "server":
            for pid in servers(daemon):
                os.kill(pid, signal.SIGKILL)
        else:
            daemon.kill()
            daemon.start()
    ended(daemon, job, 40)
    assert Counter(number for number, _ in place.ran()) == Counter(map(str, range(40)))


@pytest.mark.parametrize("victim", ["guard", "supervisor", "zygote"])
def test_a_member_whose_guard_supervisor_or_zygote_is_killed_ends_as_any_job(
    place: Place, daemon: Daemon, victim: str
) -> None:
    member = f"{place.array('wait.py')}[0]"
    guard, supervisor, command = processes(daemon, member)
    (zygote,) = [pid for pid in daemon.command.running() if parent(pid) == supervisor and pid != command]
    os.kill({"guard": guard, "supervisor": supervisor, "zygote": zygote}[victim], signal.SIGKILL)
    if victim == "zygote":
        until(lambda: start_time(zygote) is None, "it is gone")
        assert running(daemon, member)
        daemon.ask(Stop(ids=(member,)))
    (over,) = daemon.ended(member)
    assert over.state is (JobState.CANCELLED if victim == "zygote" else JobState.LOST)
    until(lambda: start_time(command) is None, "its process is gone")


def test_a_default_for_the_time_of_sockets_is_nothing_to_the_zygote(place: Place, daemon: Daemon) -> None:
    place.write("odd", "import socket\nsocket.setdefaulttimeout(0.1)")
    member = f"{place.array('wait.py', preload=('preloaded', 'odd'))}[0]"
    _, supervisor, command = processes(daemon, member)
    until(lambda: bool(daemon.job(member).replicas[0].usage), "it runs")
    directory = JobDirectory(Path(daemon.job(member).run_dir))
    assert "Traceback" not in directory.log("zygote").read_text()
    assert [pid for pid in daemon.command.running() if parent(pid) == supervisor and pid != command]


def test_what_a_module_does_to_signals_and_paths_is_nothing_to_guard_and_supervisor(
    place: Place, daemon: Daemon
) -> None:
    place.write(
        "odd",
        "import os, signal, sys\nfor each in (1, 2, 15, 17):\n    signal.signal(each, signal.SIG_IGN)\n"
        "sys.path.insert(0, '/nowhere')\nos.chdir('/')\nos.environ['ODD'] = '1'",
    )
    job = place.array("wait.py", preload=("preloaded", "odd"), stop_grace_s=600.0)
    until(lambda: daemon.job(job).array is not None and running(daemon, f"{job}[0]"), "it runs")
    supervisor = daemon.job(f"{job}[0]").supervisor_pid or 0
    assert b"ODD" not in content(supervisor, "environ")
    assert os.readlink(f"/proc/{supervisor}/cwd") == os.readlink(f"/proc/{daemon.pid}/cwd")  # noqa: PTH115
    daemon.ask(Stop(ids=(job,)))
    daemon.ended(job)
    assert daemon.job(f"{job}[0]").replicas[0].exit == ExitReason(kind="stopped")
