"""What a fork has to renew of the libraries that were loaded before it."""

import sys
from types import ModuleType

import pytest

from gpusched.frameworks.forking import renew_after_fork


def test_numexpr_computes_with_the_threads_of_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    numexpr = ModuleType("numexpr")
    numexpr.__dict__["set_num_threads"] = found.append
    monkeypatch.setitem(sys.modules, "numexpr", numexpr)
    renew_after_fork(1)
    assert found == [], "it was loaded with 1"
    renew_after_fork(2)
    assert found == [2]


def test_numexpr_that_allows_fewer_threads_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(threads: int) -> None:
        raise ValueError(threads)

    numexpr = ModuleType("numexpr")
    numexpr.__dict__["set_num_threads"] = refuse
    monkeypatch.setitem(sys.modules, "numexpr", numexpr)
    renew_after_fork(2)
    monkeypatch.delattr(numexpr, "set_num_threads")
    renew_after_fork(2)
