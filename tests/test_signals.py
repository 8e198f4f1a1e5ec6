"""A pid that is not known is never taken for 0: that is the whole group of the process that sends the signal."""

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [path for part in ("gpusched", "workloads", "bench", "tests", "docs") for path in (ROOT / part).rglob("*.py")]
SENDERS = {"kill", "killpg"}


def kills_with_a_default(code: str) -> list[int]:
    """Return the lines on which os.kill or os.killpg gets `x or y`, or a number that is written out."""
    if "os.kill" not in code:  # most files: to parse them all takes seconds
        return []
    return [
        call.lineno
        for call in ast.walk(ast.parse(code))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in SENDERS
        and ast.unparse(call.func.value) == "os"
        and isinstance(call.args[0], ast.BoolOp | ast.Constant)
    ]


def test_nothing_here_sends_a_signal_to_a_pid_or_else_to_its_own_group() -> None:
    found = {str(path.relative_to(ROOT)): kills_with_a_default(path.read_text()) for path in FILES}
    assert not {name: lines for name, lines in found.items() if lines}


def test_a_default_and_a_written_number_are_found_and_a_name_is_not() -> None:
    assert kills_with_a_default("os.kill(found or 0, 9)\nos.kill(found, 9)\nos.killpg(0, 9)\nself.kill(0)") == [1, 3]


@pytest.mark.parametrize("send", [os.kill, os.killpg])
@pytest.mark.parametrize("pid", [0, 1, -1])
def test_within_the_tests_such_a_signal_is_refused(send: Callable[[int, int], None], pid: int) -> None:
    with pytest.raises(AssertionError, match="more than one process"):
        send(pid, 0)
