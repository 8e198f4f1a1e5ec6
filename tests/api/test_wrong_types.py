"""Every function of gpusched.api refuses a value of a wrong type with UsageError, and with no other error."""

import inspect
import pkgutil
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

import pytest

import gpusched.api
from gpusched.api import attached, daemon, history, others, queue
from gpusched.errors import UsageError
from tests.cli.command import Command

SHARED: Final = {
    "arguments",
    "commands",
    "files",
    "logs",
    "member_logs",
    "plan_arguments",
    "selecting",
    "validation",
    "workloads",
}
"""Modules of what the others share; docs/python.md names none of them."""

SOUND: Final[dict[str, object]] = {
    "command": ["true"],
    "device": 0,
    "endpoint": "tcp://127.0.0.1:5555",
    "ids": "run-1",
    "job": "run-1",
    "job_id": "run-1",
    "kind": "compose",
    "name": "lab2",
    "what": ["true"],
    "user": "all",
    "workload": "snake",
}


RIGHT: Final[tuple[tuple[Callable[..., object], str, object], ...]] = (
    (queue.as_completed, "timeout", 5),
    (queue.as_completed, "ids", []),
    (queue.find_jobs, "ended", 5),
    (queue.find_jobs, "ids", []),
    (queue.select, "names", []),
    (queue.select_waiting, "names", []),
    (history.prune, "older", 5),
    (others.jobs_of_user, "ended", 5),
)
"""What is no wrong value: no jobs, or a number of them or of seconds."""


def parameters() -> Iterator[tuple[Callable[..., object], str]]:
    """Yield each function of the API with each of its parameters that is no keyword."""
    for module in pkgutil.iter_modules(gpusched.api.__path__, "gpusched.api."):
        found = import_module(module.name)
        for name in () if module.name.rpartition(".")[2] in SHARED else found.__all__:
            function = getattr(found, name)
            if not inspect.isfunction(function) or name in ("planned", "prepared_here"):
                continue
            for parameter in inspect.signature(function).parameters.values():
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                    yield function, parameter.name


def wrong_values() -> list[tuple[Callable[..., object], str, object]]:
    """Return each function with one of its parameters and a value that is wrong there."""
    values: tuple[object, ...] = (5, [])
    found = [(function, name, value) for function, name in parameters() for value in values]
    return [one for one in found if one not in RIGHT]


def arguments(function: Callable[..., object], wrong: str, value: object) -> dict[str, object]:
    """Return what `function` needs, with the value under the name `wrong`."""
    needed = inspect.signature(function).parameters.values()
    sound = {one.name: SOUND[one.name] for one in needed if one.default is one.empty and one.name in SOUND}
    return {**sound, wrong: value}


@pytest.mark.usefixtures("command")
@pytest.mark.parametrize(
    ("function", "name", "value"), wrong_values(), ids=lambda one: getattr(one, "__name__", str(one))
)
def test_a_value_of_a_wrong_type_is_a_usage_error(function: Callable[..., object], name: str, value: object) -> None:
    given = arguments(function, name, value)
    inspect.signature(function).bind(**given)

    with pytest.raises(UsageError):
        function(**given)


@pytest.mark.usefixtures("command")
def test_a_number_out_of_bounds_and_a_text_too_long_are_usage_errors() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: queue.find_jobs((), -1),
        lambda: daemon.drain(0, reason=2000 * "x"),
        lambda: daemon.drain(2000 * "x"),
    ]
    for call in wrong:
        with pytest.raises(UsageError):
            call()


def test_an_attached_command_in_a_thread_is_refused_before_it_is_queued(command: Command) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            attached.run(["true"], num_gpus=0)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test wants it)
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()

    assert [type(error) for error in raised] == [UsageError]
    assert not (command.state / "jobs").exists()
