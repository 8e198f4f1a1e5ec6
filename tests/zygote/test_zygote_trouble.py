"""A zygote only makes starts faster: whatever becomes of it, each replica is started, once, and the job goes on."""

import os
import signal
from pathlib import Path

import pytest

from gpusched.execution.directory import JobDirectory
from gpusched.execution.spec import Start
from gpusched.frameworks.forking import obstacle_to_fork
from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.zygote import client
from gpusched.zygote.client import ZygoteClient, ZygoteState
from gpusched.zygote.protocol import Forked
from tests.patience import until
from tests.supervisor.host import Host
from tests.supervisor.zygotes import Preloading, steps, wait_step, zygote

SLOW = """
import os, pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""
WAIT = "import signal, sys\nprint('here', 'preloaded' in sys.modules, flush=True)\nsignal.pause()"


@pytest.fixture
def place(host: Host, tmp_path: Path) -> Preloading:
    directory = tmp_path / "place"
    directory.mkdir()
    found = Preloading(host, directory)
    found.write("wait", WAIT)
    return found


def test_what_can_be_forked_waits_for_the_imports_and_all_else_starts_at_once(place: Preloading) -> None:
    place.write("slow", SLOW)
    shell = place.python("shell.0")
    one = place.start(
        place.python("forked.0", "-m", "wait"),
        place.python("options.0", "-B", "-m", "wait"),
        type(shell)(replica=shell.replica, argv=("sh", "-c", "sleep 1000"), env={}, cwd=shell.cwd),
        preload=("preloaded", "slow"),
    )
    one.wait_running("options.0")
    one.wait_running("shell.0")
    one.wait_output("options.0", "here False")
    wait_step(one, "preloading slow")
    until(lambda: one.status.note == "preloading slow", "the status tells what is waited for")
    assert one.replica("forked.0").state is ReplicaState.STARTING
    (place.directory / "go").touch()
    one.wait_running("forked.0")
    one.wait_output("forked.0", "here True")
    until(lambda: one.status.note is None, "nothing is waited for")
    assert "preloaded preloaded, slow in " in wait_step(one, "ready: ")
    assert "preloaded preloaded, slow in " in one.output("supervisor")


def test_a_stop_does_not_wait_for_the_imports(place: Preloading) -> None:
    place.write("slow", SLOW)
    one = place.start(*(place.python(f"part.{n}", "-m", "wait") for n in range(20)), preload=("slow",))
    until(lambda: one.status.note == "preloading slow", "the status tells what is waited for")
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    assert one.status.note is None, "nothing is waited for any more"
    assert {each.exit for each in one.status.replicas} == {ExitReason(kind="stopped")}
    assert {each.pid for each in one.status.replicas} == {None}
    one.wait_gone()


REFUSED = {
    "a module that is not there": ("import no_such_module", "import odd: ModuleNotFoundError: No module named 'no_"),
    "a module that ends": ("import sys\nsys.exit(3)", "import odd: SystemExit: 3"),
    "a module that dies": ("import os\nos.kill(os.getpid(), 11)", "ended by signal 11 while preloading odd"),
    "an error of many words": ("raise ImportError(200_000 * 'x')", "import odd: ImportError: xxx"),
    "a module that leaves": ("import os\nos._exit(7)", "ended with code 7 while preloading odd"),
    "a module that closes all": ("import os, time\nos.closerange(3, 99)\ntime.sleep(600)", "ended by signal 9"),
    "a module that speaks to us": (
        "import os, sys\nos.write(int(sys.argv[1]), b'no message')",
        "is not used: a module has written to its socket",
    ),
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "after the import of odd it cannot be forked: it has left 1 more thread (python",
    ),
    "cupy": ("import sys, types\nsys.modules['cupy'] = types.ModuleType('cupy')", "cupy reads its memory limit when"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_after_an_import_that_forbids_forks_replicas_import_for_themselves(
    place: Preloading, text: str, why: str
) -> None:
    place.write("odd", text)
    one = place.start(place.python("part.0", "-m", "wait"), preload=("odd",))
    one.wait_output("part.0", "here False")
    (gone,) = [step for step in steps(one) if step.startswith("gone: ")] or [wait_step(one, "gone: ")]
    assert why in gone
    assert one.output("supervisor").count("from now on each replica imports for itself") == 1
    assert one.replica("part.0").restarts == 0
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    one.wait_gone()


def test_a_thread_that_is_over_is_no_obstacle(place: Preloading) -> None:
    text = "import threading\nfor _ in range(50):\n    t = threading.Thread(target=print)\n    t.start()\n    t.join()"
    place.write("threads", text)
    one = place.start(place.python("part.0", "-m", "wait"), preload=("threads", "preloaded"))
    one.wait_output("part.0", "here True")


def test_who_has_a_device_of_the_driver_open_has_started_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusched.frameworks.forking.loaded_frameworks", tuple)  # an earlier test may have some
    device = tmp_path / "nvidia0"
    device.touch()
    assert obstacle_to_fork(f"{tmp_path}/nvidia") is None
    with device.open():
        assert obstacle_to_fork(f"{tmp_path}/nvidia") == f"it has started CUDA: {device} is open"


def test_a_zygote_that_is_killed_costs_no_replica(place: Preloading) -> None:
    one = place.start(place.python("part.0", "-m", "wait"), place.python("part.1", "-m", "wait"))
    before = [one.wait_running(f"part.{rank}") for rank in range(2)]
    one.wait_output("part.1", "here True")
    os.kill(zygote(one), signal.SIGKILL)
    wait_step(one, "gone: the zygote ended by signal 9; from now on")
    os.kill(before[1], signal.SIGKILL)
    one.wait_running("part.1", restarts=1)
    one.wait_output("part.1", "here False")
    assert one.replica("part.0").pid == before[0]
    assert one.status.state is JobState.RUNNING


def test_a_zygote_that_hangs_is_given_up_and_nothing_is_started_twice(place: Preloading) -> None:
    place.write("once", "print('one start', flush=True)\nimport signal\nsignal.pause()")
    one = place.start(
        place.python("part.0", "-m", "wait"), *(place.python(f"late.{n}", "-m", "once") for n in range(3))
    )
    running = {name: one.wait_running(name) for name in ("part.0", "late.0", "late.1", "late.2")}
    for rank in range(3):
        one.wait_output(f"late.{rank}", "one start")
    hung = zygote(one)
    os.kill(hung, signal.SIGSTOP)
    for rank in range(3):
        os.kill(running[f"late.{rank}"], signal.SIGKILL)
    for rank in range(3):
        one.wait_running(f"late.{rank}", restarts=1)
        one.wait_output(f"late.{rank}", "one start", times=2)
    wait_step(one, "gone: the zygote did not fork a replica within 2 s")
    until(lambda: hung not in one.pids(), "the zygote was ended")
    now = [one.replica(name).pid for name in running]
    until(lambda: one.pids() == sorted([*filter(None, now), one.supervisor, one.guard()]), "no other is left")
    assert [one.output(f"late.{rank}").count("one start") for rank in range(3)] == [2, 2, 2]
    assert one.replica("part.0").pid == running["part.0"]


def test_forked_replicas_die_with_their_supervisor(place: Preloading) -> None:
    one = place.start(*(place.python(f"part.{rank}", "-m", "wait") for rank in range(4)))
    for rank in range(4):
        one.wait_output(f"part.{rank}", "here True")
    guard = one.guard()
    os.kill(guard, signal.SIGSTOP)  # it would sweep too: here the kernel has to
    os.kill(one.supervisor, signal.SIGKILL)
    until(lambda: one.pids() == [guard], "only the guard is left")
    os.kill(guard, signal.SIGCONT)
    assert one.wait_ended().state is JobState.LOST
    one.wait_gone()


def test_a_zygote_that_never_finishes_is_given_up(
    place: Preloading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LOAD_PATIENCE_S", 0.0)
    place.write("slow", SLOW)
    one = ZygoteClient(("slow",))
    one.start(os.environ, tmp_path, str(place.directory), tmp_path / "log")
    pid = one.pid
    assert pid is not None
    assert one.takes(place.python("part.0", "-m", "wait"))
    until(lambda: one.receive() is None and one.state is ZygoteState.GONE, "it is given up")  # type: ignore[func-returns-value]
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    one.ended("by signal 9")
    assert not one.takes(place.python("part.0", "-m", "wait"))
    (told,) = [words for step, words in one.steps() if step == "gone"]
    assert "within 0 s" in told


def test_a_fork_that_nobody_heard_of_ends_without_having_begun(place: Preloading, tmp_path: Path) -> None:
    one = ZygoteClient(("preloaded",))
    one.start(os.environ, tmp_path, str(place.directory), tmp_path / "log")
    until(lambda: one.receive() is None and one.state is ZygoteState.READY, "it is ready")  # type: ignore[func-returns-value]
    spec, nothing = place.python("part.0", "-m", "wait"), os.open(os.devnull, os.O_RDWR)
    log = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    gate, ours = os.pipe()
    memories = [os.memfd_create(name) for name in ("one", "other")]
    start = Start(spec=spec, env=dict(os.environ), streams=(nothing, log, log))
    forked = one._ask([start, start], [gate, gate], memories)
    assert isinstance(forked, Forked)
    assert len(set(forked.pids)) == 2
    os.close(gate)
    assert all(Path(f"/proc/{pid}").exists() for pid in forked.pids)
    os.close(ours)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in forked.pids), "they have ended")
    assert (tmp_path / "out").read_bytes() == b""
    for descriptor in (nothing, log, *memories):
        os.close(descriptor)
    one.close()
    os.waitpid(one.pid or 0, 0)


def test_a_spec_of_a_release_without_preload_is_understood(place: Preloading) -> None:
    one = place.start(place.python("part.0", "-m", "wait"), preload=())
    one.wait_output("part.0", "here False")
    assert not steps(one)
    text = one.directory.spec.read_text().replace('"preload": [],', "")
    assert "preload" not in text
    one.directory.spec.write_text(text)
    assert JobDirectory(one.directory.path).read_spec().preload == ()


def test_an_attached_command_has_no_zygote(host: Host, place: Preloading) -> None:
    place.write("told", "import sys\nprint('preloaded' in sys.modules)")
    one = host.prepare(place.python("command.0", "-m", "told"), preload=("preloaded",))
    launcher = host.attach(one)
    out, _ = launcher.communicate()
    assert out.split() == [b"False"]
    assert not steps(one)
