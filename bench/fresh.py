"""Measurements in processes of their own, so that no import, context or thread of one colours another."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from gpusched.linux.processes import descendants

__all__ = ["ROOT", "Failed", "fresh"]

ROOT: Final = Path(__file__).parents[1]
_LAST_WORDS: Final = 600


class Failed(Exception):
    """A measurement ended without figures; the text says how."""


def fresh(
    module: str,
    *words: str,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> dict[str, Any]:
    """Run `python -m module words...` in the project's folder and return the JSON object that is its last line.

    `environ` is added to this process's. Raises Failed with the last words of stderr if there is no such line, or not
    within `timeout_s`. Whatever of its process tree is left when it ends, or when this call is interrupted, is killed,
    and what those had in TMPDIR goes.
    """
    argv = [python, "-m", module, *words]
    with (
        tempfile.TemporaryDirectory(prefix="gb-", ignore_cleanup_errors=True) as home,
        tempfile.TemporaryFile("w+") as errors,
    ):
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": home, **(environ or {})}
        process = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        try:
            told, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{module} {' '.join(words)}: no figures after {timeout_s:.0f} s") from None
        finally:
            _end(process)
        return _figures(told, process.returncode, f"{module} {' '.join(words)}", errors)


def _figures(told: str, code: int, what: str, errors: IO[str]) -> dict[str, Any]:
    lines = told.strip().splitlines()
    with contextlib.suppress(ValueError, IndexError):
        figures = json.loads(lines[-1])
        if code == 0 and isinstance(figures, dict):
            return figures
    errors.seek(0)
    raise Failed(f"{what}: ended with code {code}: {errors.read().strip()[-_LAST_WORDS:]}")


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what is left of a process: those below it, and those of its group that lost their parent."""
    left = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
