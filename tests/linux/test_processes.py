import os
import signal
import subprocess
import sys
from pathlib import Path

from gpusched.execution.start import this_process
from gpusched.linux.processes import boot_id, descendants, start_time
from tests.patience import until


def test_a_name_with_brackets_and_spaces_does_not_confuse_the_start_time(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "1000"]) as child:
        began = start_time(child.pid)
        child.kill()
    mine = start_time(os.getpid())
    assert began is not None
    assert mine is not None
    assert mine <= began < mine + 3600 * os.sysconf("SC_CLK_TCK")


def test_a_process_that_is_gone_or_a_zombie_has_no_start_time() -> None:
    with subprocess.Popen(["true"]) as child:
        until(lambda: start_time(child.pid) is None, "it is a zombie")
    assert start_time(child.pid) is None
    assert start_time(2**22 + 1) is None


def test_this_process_has_an_identity() -> None:
    assert this_process().start == start_time(os.getpid())
    assert len(boot_id()) == 36


def test_descendants_are_found_over_generations() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000 & wait"], start_new_session=True) as child:
        until(lambda: len(descendants(child.pid)) == 2, "both are there")
        assert set(descendants(child.pid)) < set(descendants(os.getpid()))
        os.killpg(child.pid, signal.SIGKILL)


def test_the_guard_stays_small() -> None:
    code = (
        "import sys, gpusched.supervisor.guard as g; print([m for m in ('msgspec', 'subprocess', 'json', 'typing', "
        "'pathlib', 'numpy') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "[]\n"
