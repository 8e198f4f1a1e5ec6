"""No test has a short patience of its own, nor measures how long something took: that says how busy the host is."""

import ast
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
SHORTEST_THAT_IS_A_BOUND_S = 5
"""Below it a test waits for what shall not come, which a slow host only makes likelier to pass."""


def own_bounds(code: str) -> list[int]:
    """Return the lines with a shorter bound that is written out, or with a comparison of a span of time."""
    tree = ast.parse(code)
    keywords = [
        word.value.lineno
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) != "pytest.mark.timeout"
        for word in call.keywords
        if word.arg == "timeout" and isinstance(word.value, ast.Constant) and is_a_bound(word.value.value)
    ]
    compared = [
        part.lineno
        for part in ast.walk(tree)
        if isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Lt | ast.LtE)
        and ast.unparse(part.left).startswith(("time.monotonic() - ", "time.perf_counter() - "))
    ]
    return sorted(keywords + compared)


def is_a_bound(value: object) -> bool:
    return isinstance(value, int | float) and SHORTEST_THAT_IS_A_BOUND_S <= value < PATIENCE_S


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_wait_has_the_bound_that_only_a_hang_meets(path: Path) -> None:
    assert not own_bounds(path.read_text()), "use PATIENCE_S of tests/patience.py, and wait for a condition"


def test_a_written_bound_and_a_measured_span_are_found_and_a_short_wait_is_not() -> None:
    code = "process.wait(timeout=20)\nactor.send(one, timeout=0.3)\nassert time.monotonic() - began < 3\nrun(timeout=P)"
    assert own_bounds(code) == [1, 3]
