"""One call of an Executor in a process of its own: what is called, and what came of it, as files of its job.

`python -m gpusched.calls` is the command of a member of an open array. The call lies in the array's directory, and its
result in the member's; both are pickles, with mode 0600, that only this user can have written.
"""

import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from gpusched.errors import HostFault, NotFound, NotLaunched
from gpusched.linux.regular_files import open_regular
from gpusched.model.array import array_of, number_of_member

__all__ = ["RemoteError", "calls_of", "cancel_call", "is_begun", "main", "read_result", "result_of", "write_call"]

_CALLS: Final = "calls"
_RESULT: Final = "result"
_WAITS, _BEGUN = "call", "begun"


class RemoteError(Exception):
    """The traceback of a call that raised, as text: the cause of the exception that its future has."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def calls_of(array: Path) -> Path:
    """Return where the calls of an array lie, by its directory."""
    return array / _CALLS


def result_of(member: Path) -> Path:
    """Return where the result of a member lies, by its directory."""
    return member / _RESULT


def write_call(
    calls: Path, number: int, function: Callable[..., object], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Write down a call before its member can begin. Raises OSError, and whatever pickling raises."""
    import cloudpickle

    content = cloudpickle.dumps((function, tuple(arguments), dict(keywords)))
    path = [str(Path(entry).absolute()) for entry in sys.path]  # "" is the directory of this process
    temporary = calls / f"{number}.new"
    try:
        with _opened(temporary) as file:
            pickle.dump((path, content), file)
        temporary.rename(calls / f"{number}.{_WAITS}")
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def cancel_call(calls: Path, number: int) -> bool:
    """Return whether a call could be cancelled: it had not begun."""
    try:
        (calls / f"{number}.{_WAITS}").unlink()
    except FileNotFoundError:
        return False
    return True


def is_begun(calls: Path, number: int) -> bool:
    """Return whether a process has taken the call, if it was not cancelled."""
    return not (calls / f"{number}.{_WAITS}").exists()


def read_result(path: Path) -> tuple[Any, BaseException | None]:
    """Return what a call returned, or what it raised. Raises FileNotFoundError before it has ended.

    Raises HostFault for a result that cannot be read, such as one of a class that is not here.
    """
    with os.fdopen(_open_own(path), "rb") as file:
        text = pickle.load(file)  # noqa: S301 (of this user's own process)
        try:
            value, error = pickle.load(file)  # noqa: S301
        except Exception as problem:
            if not text:
                message = f"the result cannot be read here: {problem!r}"
                raise HostFault(message, "import its class here, too") from problem
            value, error = None, None
    if error is None and text:
        error = RuntimeError(f"what the call raised cannot be sent: {text.strip().splitlines()[-1]}")
    if error is not None:
        error.__cause__ = RemoteError(text)
    return value, error


def main() -> None:
    """Run the call that this process was started for, unless it was cancelled. The exit code is 0 where it ended."""
    member = Path(os.environ.get("GPUSCHED_RUN_DIR", ""))
    array, number = array_of(member.name), number_of_member(member.name)
    if array is None:
        raise NotLaunched("gpusched.calls is started for an Executor alone", "see docs/executor.md")
    calls = calls_of(member.with_name(array))
    if not _taken(calls, number):
        return
    value, error, text = _outcome(calls / f"{number}.{_BEGUN}")
    result = result_of(member)
    try:
        _dump(result, text, (value, error))
    except Exception:  # noqa: BLE001 (what the call returned or raised cannot be pickled, in whatever way)
        _dump(result, text or traceback.format_exc(), (None, None))


def _outcome(taken: Path) -> tuple[Any, BaseException | None, str]:
    """Return what the call returned, what it raised, and the traceback of that."""
    try:
        try:
            with os.fdopen(_open_own(taken), "rb") as file:
                path, content = pickle.load(file)  # noqa: S301 (of this user's own process)
        finally:
            taken.unlink(missing_ok=True)
        sys.path[:] = [*path, *(entry for entry in sys.path if entry and entry not in path)]
        function, arguments, keywords = pickle.loads(content)  # noqa: S301
        return function(*arguments, **keywords), None, ""
    except BaseException as error:  # noqa: BLE001 (as a future has it: also KeyboardInterrupt and SystemExit)
        return None, error, traceback.format_exc()


def _dump(path: Path, text: str, outcome: tuple[Any, BaseException | None]) -> None:
    """Write a result whole: where it is, it can be read. The `text` of an error comes first, if that cannot be."""
    import cloudpickle

    temporary = path.with_name(f"{path.name}.new")
    with _opened(temporary) as file:
        pickle.dump(text, file)
        cloudpickle.dump(outcome, file)
    temporary.replace(path)


def _opened(path: Path) -> BinaryIO:
    """Open a file for writing that only this user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb")


def _taken(calls: Path, number: int) -> bool:
    """Take a call, which only one process can; return whether it was this one."""
    try:
        (calls / f"{number}.{_WAITS}").rename(calls / f"{number}.{_BEGUN}")
    except FileNotFoundError:
        return False
    return True


def _open_own(path: Path) -> int:
    """Open a file for reading that no other user can have put there. Raises OSError, and NotFound for another's."""
    descriptor = open_regular(path, os.O_RDONLY)
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise NotFound(f"{path} belongs to another user", "it is not read")
    return descriptor


if __name__ == "__main__":
    main()
