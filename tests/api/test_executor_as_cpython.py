"""Python's own tests of executors, where they are installed: those that do not look inside of an executor.

They are part of Python's source, and of Debian's libpython3-testsuite; this file has none of them.
"""

import importlib
import importlib.util
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

import gpusched

NOT_OURS = (
    "test_max_workers_negative",  # it calls the executor's type with the arguments of a pool
    # These tell what came first by seconds, and a call of ours takes some on a busy host: it starts a process.
    "test_map_timeout",
    "test_timeout",
    "test_first_completed",
    "test_first_exception",
    "test_first_exception_some_already_complete",
)


def found() -> Iterator[Path]:
    """Yield where the tests are: one file up to Python 3.11, then a package."""
    places = [*map(Path, importlib.import_module("test").__path__), *sorted(Path("/usr/lib").glob("python3*/test"))]
    for place in places:
        yield from (path for path in (place / "test_concurrent_futures.py",) if path.exists())
        yield from (path for path in (place / "test_concurrent_futures",) if (path / "executor.py").exists())


def loaded(path: Path) -> dict[str, Any]:
    """Return the classes of tests by their names."""
    if path.is_file():
        return vars(module(path, "cpython_futures"))
    module(path / "__init__.py", "cpython_futures", [str(path)])
    names = ("executor", "test_wait", "test_as_completed")
    return {
        name: value
        for part in names
        for name, value in vars(module(path / f"{part}.py", f"cpython_futures.{part}")).items()
    }


def module(path: Path, name: str, parts: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=parts)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    cloudpickle.register_pickle_by_value(made)  # the processes of the calls do not find it by its name
    return made


class OfOurs:
    """What those tests need: an executor, and how many calls it runs at the same time."""

    worker_count = 2
    executor_type = staticmethod(lambda max_workers: gpusched.Executor(at_most=max_workers, num_gpus=0))
    executor: gpusched.Executor

    def setUp(self) -> None:
        self.started = time.monotonic()
        self.executor = gpusched.Executor(num_gpus=0, at_most=self.worker_count)

    def tearDown(self) -> None:
        self.executor.shutdown(wait=True)

    def create_event(self) -> Any:
        raise unittest.SkipTest("it wants an event that is shared with the processes of multiprocessing")


@pytest.mark.slow
@pytest.mark.usefixtures("command")
@pytest.mark.parametrize("of", ["ExecutorTest", "WaitTests", "AsCompletedTests"])
def test_pythons_own_tests_of_executors_pass(of: str) -> None:
    path = next(found(), None)
    if path is None:
        pytest.skip("Python's own tests are not installed: apt install libpython3-testsuite")
    tests = loaded(path)[of]
    case = type(f"Ours{of}", (OfOurs, tests, unittest.TestCase), {})
    names = [name for name in unittest.defaultTestLoader.getTestCaseNames(case) if name not in NOT_OURS]
    assert len(names) >= 4
    outcome = unittest.TestResult()
    unittest.TestSuite(case(name) for name in names).run(outcome)
    assert [text for _, text in (*outcome.errors, *outcome.failures)] == []
    assert outcome.testsRun == len(names)
