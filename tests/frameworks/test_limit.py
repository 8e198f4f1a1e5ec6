"""Reading this process's limit: what gpusched.environment writes is what the frameworks are limited to."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched import runtime
from gpusched.environment import resource_environment
from gpusched.errors import UsageError
from gpusched.frameworks import limit_memory
from gpusched.frameworks.hook.gpusched_import_hook import LimitingFinder, install
from gpusched.frameworks.jax import fraction_variable
from gpusched.frameworks.limit import Limit, log_message, read_limit
from gpusched.model.plan import Replica


@given(mib=st.integers(1, 1 << 20), fraction=st.integers(1, 10_000))
def test_the_limit_that_the_contract_writes_is_the_one_that_is_read_here_and_there(mib: int, fraction: int) -> None:
    replica = Replica(name="a.0", role="a", rank=0, device_uuid="GPU-0", limit_mib=mib, fraction=fraction)
    env = resource_environment(replica, fraction_variable(None))
    assert read_limit(env) == Limit(mib, fraction)
    assert runtime.memory_limit(env) == (mib, fraction)


def test_a_process_without_a_device_or_outside_a_launch_has_no_limit() -> None:
    assert read_limit({}) is None
    assert read_limit(resource_environment(Replica(name="a.0", role="a", rank=0), "X")) is None


def test_a_fraction_that_was_rounded_down_to_nothing_never_means_everything() -> None:
    assert read_limit({"GPUSCHED_MEMORY_LIMIT_MIB": "8", "GPUSCHED_MEMORY_FRACTION": "0.0000"}) == Limit(8, 1)


@pytest.mark.parametrize("mib", ["", "0", "-1", "1.5", "much"])
def test_a_limit_that_is_no_number_is_refused_by_name(mib: str) -> None:
    with pytest.raises(UsageError, match="GPUSCHED_MEMORY_LIMIT_MIB"):
        read_limit({"GPUSCHED_MEMORY_LIMIT_MIB": mib, "GPUSCHED_MEMORY_FRACTION": "0.5"})


@pytest.mark.parametrize("fraction", ["", "-0.1", "1.01", "nan", "inf", "half"])
def test_a_fraction_that_is_none_is_refused_by_name(fraction: str) -> None:
    with pytest.raises(UsageError, match="GPUSCHED_MEMORY_FRACTION"):
        read_limit({"GPUSCHED_MEMORY_LIMIT_MIB": "512", "GPUSCHED_MEMORY_FRACTION": fraction})


def test_without_a_limit_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSCHED_MEMORY_LIMIT_MIB", raising=False)
    before = list(sys.meta_path)
    assert limit_memory() == ()
    assert sys.meta_path == before


@pytest.mark.usefixtures("none_loaded")
def test_with_a_limit_the_imports_to_come_are_watched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCHED_MEMORY_LIMIT_MIB", "512")
    monkeypatch.setenv("GPUSCHED_MEMORY_FRACTION", "0.1")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    assert limit_memory() == limit_memory()
    install()
    assert sum(isinstance(finder, LimitingFinder) for finder in sys.meta_path) == 1


def test_saying_something_never_breaks_a_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    log_message("nobody hears this")
    assert capsys.readouterr().out == ""
