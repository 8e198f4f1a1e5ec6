"""A signal of a test goes to one process or one group that the test names, never to the tests' own."""

import os
from typing import Final

__all__ = ["refuse_whole_groups"]

_KILL: Final = os.kill
_KILLPG: Final = os.killpg


def refuse_whole_groups() -> None:
    """Have os.kill and os.killpg refuse 0, the caller's group, 1, and less, which is everything or another group."""
    os.kill, os.killpg = _kill, _killpg


def _kill(pid: int, number: int) -> None:
    _require_one(pid)
    _KILL(pid, number)


def _killpg(group: int, number: int) -> None:
    _require_one(group)
    _KILLPG(group, number)


def _require_one(pid: int) -> None:
    if pid <= 1:
        raise AssertionError(f"a signal to process {pid} would reach more than one process")
