"""Replicas that are forked from a zygote are what they would be if they had been executed."""

import os
import signal
from pathlib import Path

import pytest

from gpusched.model.status import ExitReason, JobState, ReplicaState
from gpusched.supervisor.runner import _STARTS_PER_TURN
from gpusched.zygote.protocol import DESCRIPTORS
from gpusched.zygote.server import _MOST_DESCRIPTORS
from tests.patience import until
from tests.supervisor.host import Host
from tests.supervisor.zygotes import EXECUTED, Preloading, steps, zygote


@pytest.fixture
def place(host: Host, tmp_path: Path) -> Preloading:
    directory = tmp_path / "place"
    directory.mkdir()
    return Preloading(host, directory)


def test_the_replicas_that_are_started_in_one_turn_go_to_the_zygote_in_one_packet() -> None:
    assert _STARTS_PER_TURN * DESCRIPTORS <= _MOST_DESCRIPTORS


WAYS = {"module": ("-m", "tell_all"), "script": ("tell_all.py",), "unbuffered": ("-u", "tell_all.py")}


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS.keys())
def test_a_forked_replica_finds_what_an_executed_one_finds(
    place: Preloading, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = max(os.sched_getaffinity(0))
    monkeypatch.setenv("ODD", os.fsdecode(b"\xff\xfe"))
    odd = {f"LONG_{number}": "x" * 100_000 for number in range(5)}
    place.start(
        place.python("part.0", *words, "told.json", "a b", env=odd, cpus=(cpu, 4000)),
        place.python("part.1", *words, "told.json2", "a b", env=odd | EXECUTED, cpus=(cpu, 4000)),
    )
    forked, executed = place.told("told.json"), place.told("told.json2")
    assert (forked.pop("preloaded"), executed.pop("preloaded")) == (True, False)
    assert forked["cpus"] == [cpu]
    assert forked["threads"] == 1
    for told, name in ((forked, "told.json"), (executed, "told.json2")):
        environ, shown = told["environ"], told["proc environ"]
        assert isinstance(environ, dict)
        assert isinstance(shown, list)
        environ.pop("PYTHONUTF8", None)
        told["proc environ"] = [each for each in shown if not each.startswith("PYTHONUTF8=")]
        for words_ in ("argv", "orig_argv"):
            found = told[words_]
            assert isinstance(found, list)
            found.remove(name)
        told["cmdline"] = str(told["cmdline"]).replace(name, "FILE")
        streams = told["streams"]
        assert isinstance(streams, list)
        told["streams"] = [str(stream).replace("part.1", "part.0") for stream in streams]
    assert forked == executed


ENDS = {
    "nothing more": ("print('out')", ExitReason(kind="completed")),
    "a code": ("import sys; sys.exit(3)", ExitReason(kind="crashed", code=3)),
    "a text": ("import sys; sys.exit('it is over')", ExitReason(kind="crashed", code=1, message="it is over")),
    "an exception": (
        "def f():\n    raise ValueError('wrong')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError(1) from e",
        ExitReason(kind="crashed", code=1, message="KeyError: 1"),
    ),
    "a syntax error": ("def", ExitReason(kind="crashed", code=1, message="SyntaxError: invalid syntax")),
    "an interrupt": ("raise KeyboardInterrupt", ExitReason(kind="signalled", signal=signal.SIGINT)),
    "a signal": ("import os; os.kill(os.getpid(), 11)", ExitReason(kind="signalled", signal=signal.SIGSEGV)),
    "a thread": (
        (
            "import atexit, threading, time\natexit.register(print, 'last')\ndef later():\n    time.sleep(0.2)\n"
            "    print('from the thread')\nthreading.Thread(target=later).start()"
        ),
        ExitReason(kind="completed"),
    ),
    "a hook": (
        (
            "import sys\ndef hook(kind, error, trace):\n    print(trace.tb_frame.f_code.co_name)\n    print(error)\n"
            "sys.excepthook = hook\n1/0"
        ),
        ExitReason(kind="crashed", code=1, message="division by zero"),
    ),
}


@pytest.mark.parametrize(("text", "reason"), ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("words", [("-m", "ends"), ("ends.py",)], ids=["module", "script"])
def test_a_forked_replica_ends_as_an_executed_one(
    place: Preloading, words: tuple[str, ...], text: str, reason: ExitReason
) -> None:
    place.write("ends", text)
    forked, executed = place.python("forked.0", *words), place.python("executed.0", *words, env=EXECUTED)
    one = place.start(forked, executed, restart={})
    one.wait_ended()
    ended = one.replica("forked.0").exit
    assert ended == one.replica("executed.0").exit
    assert ended == reason

    def said(name: str) -> list[str]:
        return [line for line in one.output(name).splitlines() if not line.startswith("--- ")]

    assert said("forked.0") == said("executed.0")


def test_a_program_that_is_not_there_says_so_as_ever(place: Preloading) -> None:
    long = place.python("long.0", "x" * 300 + ".py")
    one = place.start(place.python("module.0", "-m", "gone"), place.python("script.0", "gone.py"), long)
    assert one.wait_ended().state is JobState.FAILED
    assert "can't open file" in one.output("long.0")
    assert "No module named gone" in one.output("module.0")
    assert "can't open file" in one.output("script.0")


WAIT = "import signal, sys, time\nprint('here', 'preloaded' in sys.modules, flush=True)\nsignal.pause()"


def test_a_replica_that_is_started_again_is_forked_again(place: Preloading) -> None:
    place.write("wait", WAIT)
    one = place.start(place.python("part.0", "-m", "wait"))
    first = one.wait_running("part.0")
    one.wait_output("part.0", "here True")
    os.kill(first, signal.SIGKILL)
    one.wait_running("part.0", restarts=1)
    one.wait_output("part.0", "here True", times=2)
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED
    assert one.replica("part.0").exit == ExitReason(kind="stopped")
    assert [step.partition(":")[0] for step in steps(one)] == ["loading", "ready"], "its end with the job is no news"
    one.wait_gone()


def test_forks_are_children_of_the_supervisor_and_none_is_left_in_between(place: Preloading) -> None:
    place.write("wait", WAIT)
    one = place.start(*(place.python(f"part.{rank}", "-m", "wait") for rank in range(20)))
    pids = [one.wait_running(f"part.{rank}") for rank in range(20)]
    parents = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in pids}
    assert parents == {str(one.supervisor)}
    until(lambda: one.pids() == sorted([*pids, one.supervisor, one.guard(), zygote(one)]), "no other is left")
    assert all(one.replica(f"part.{rank}").state is ReplicaState.RUNNING for rank in range(20))


def test_what_a_forked_replica_leaves_in_its_group_dies_with_it(place: Preloading) -> None:
    place.write("leave", "import subprocess\nsubprocess.Popen(['sleep', '1000'])")
    place.write("wait", WAIT)
    one = place.start(place.python("part.0", "-m", "leave"), place.python("other.0", "-m", "wait"))
    until(lambda: one.replica("part.0").state is ReplicaState.EXITED, "the first has left")
    other = one.wait_running("other.0")
    until(lambda: one.pids() == sorted([other, one.supervisor, one.guard(), zygote(one)]), "its child is dead")


def test_forked_replicas_draw_random_numbers_of_their_own(place: Preloading) -> None:
    place.write("drawn", "import numpy.random, random, uuid\nnumpy.random.rand()\nrandom.random()")
    place.write("draw", "import numpy, random, uuid\nprint('drew', numpy.random.rand(), random.random(), uuid.uuid4())")
    one = place.start(*(place.python(f"part.{rank}", "-m", "draw") for rank in range(3)), preload=("drawn",))
    one.wait_ended()
    lines = [line for rank in range(3) for line in one.output(f"part.{rank}").splitlines() if line.startswith("drew")]
    numbers = [number for line in lines for number in line.split()[1:]]
    assert len(set(numbers)) == len(numbers) == 9


def test_a_preloaded_module_can_be_what_is_run(place: Preloading) -> None:
    place.write("itself", "print('I am', __name__, flush=True)")
    one = place.start(place.python("part.0", "-m", "itself"), preload=("itself",))
    one.wait_ended()
    assert one.output("part.0").splitlines()[1:] == ["I am __main__"]
    assert one.output("zygote") == "I am itself\n"


def test_signals_that_a_preloaded_module_handles_do_in_replicas_what_they_always_do(place: Preloading) -> None:
    place.write("handles", "import signal\nfor each in (1, 2, 15):\n    signal.signal(each, signal.SIG_IGN)")
    place.write("wait", WAIT)
    one = place.start(place.python("part.0", "-m", "wait"), preload=("handles",), stop_grace_s=3600.0)
    one.wait_output("part.0", "here")
    one.stop()
    assert one.wait_ended().state is JobState.CANCELLED


def test_signals_that_are_ignored_where_a_job_is_started_do_in_forks_what_they_do_in_others(place: Preloading) -> None:
    place.write("tell", "import signal\nprint('does', [signal.getsignal(number) for number in (1, 2)])")
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGINT)}
    try:
        one = place.start(
            place.python("forked.0", "-m", "tell"), place.python("executed.0", "-m", "tell", env=EXECUTED)
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    one.wait_ended()
    (forked,), (executed,) = (
        [line for line in one.output(name).splitlines() if line.startswith("does ")]
        for name in ("forked.0", "executed.0")
    )
    assert forked == executed


CHANGES = {
    "signals of children are ignored": "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a stream is closed": "import os\nos.close(0)",
    "imports come from elsewhere": "import sys\nsys.path.insert(0, 'elsewhere')",
}


@pytest.mark.parametrize("text", CHANGES.values(), ids=CHANGES.keys())
def test_what_a_preloaded_module_changes_harms_no_replica(place: Preloading, text: str) -> None:
    place.write("changes", text)
    place.write(
        "finds",
        "import os, sys\nprint('preloaded' in sys.modules, os.readlink('/proc/self/fd/0'), sys.path.index(os.getcwd()),"
        " sys.path[:1] == ['elsewhere'])",
    )
    one = place.start(place.python("part.0", "-m", "finds"), preload=("preloaded", "changes"))
    assert one.wait_ended().state is JobState.SUCCEEDED, one.output("part.0")
    before = "elsewhere" in text
    assert one.output("part.0").splitlines()[1] == f"True /dev/null {int(before)} {before}"


def test_what_imports_nothing_from_its_directory_is_forked_by_a_zygote_that_does_not_either(
    place: Preloading,
) -> None:
    place.write("platform", "raise RuntimeError('the platform of a person was imported')")
    place.write("main", "import colorsys, platform, sys; print(preloaded_before, sys.flags.safe_path)")
    program = place.directory / "main.py"
    program.write_text("import sys; preloaded_before = 'colorsys' in sys.modules\n" + program.read_text())

    one = place.start(place.python("part.0", "-P", "main.py"), preload=("colorsys",))

    one.wait_output("part.0", "True True")
