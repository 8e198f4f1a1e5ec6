"""Ctrl-C that comes while Python runs a callback."""

import signal
import subprocess
import sys

from tests.patience import PATIENCE_S

CALLBACK = """
import os, signal
from gpusched.linux.interrupt import keep_interrupts, raise_if_interrupted

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

keep_interrupts()
raise_if_interrupted()
Callback()
print("goes on", flush=True)
raise_if_interrupted()
print("never", flush=True)
"""


AMID_THE_IMPORTS = """
import os, signal, sys

class Typed:
    def find_spec(self, name, *_):
        if name == "gpusched.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Typed())
import gpusched.__main__
print("goes on")
"""


def test_ctrl_c_amid_the_imports_ends_the_command_with_no_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AMID_THE_IMPORTS], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_an_interrupt_that_python_dropped_is_heard_at_the_next_turn() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALLBACK], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "goes on\n"
    assert done.returncode in (-signal.SIGINT, 130)


def test_the_command_line_keeps_interrupts() -> None:
    code = CALLBACK.replace("\nkeep_interrupts()", "\nimport gpusched.__main__", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "goes on\n"


def test_a_background_job_that_ignores_ctrl_c_goes_on_to() -> None:
    code = CALLBACK.replace(
        "\nkeep_interrupts()", "\n" + "signal.signal(signal.SIGINT, signal.SIG_IGN); keep_interrupts()", 1
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "goes on\nnever\n"
