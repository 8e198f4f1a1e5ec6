"""Orders to a supervisor that runs: lines of JSON in its job's orders.jsonl, and a SIGHUP to have them read at once.

    {"order":"stop","message":"stopped by anna","kill":false}
    {"order":"overrun","replica":"actor.3","pid":123,"message":"uses 2100 of its 1500 MiB","restart":true}
    {"order":"passed-on"}
    {"order":"idle","message":"its devices have done nothing for 30m00s","end":false}

Lines are only ever appended, and a line that is no order harms no other.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gpusched.errors import HostFault, NotFound
from gpusched.execution.directory import JobDirectory
from gpusched.execution.read_jobs import is_alive
from gpusched.linux.processes import wake
from gpusched.linux.regular_files import append_regular, read_from
from gpusched.model.status import JOB_TERMINAL, JobStatus

__all__ = ["IdleOrder", "Order", "OverrunOrder", "PassedOnOrder", "StopOrder", "end_of", "give", "read_new"]

_CHUNK: Final = 1 << 16  # bytes read at once, and more than any order has
_MOST_UNREAD: Final = 1 << 20  # bytes; what stands before the last of them is passed over

Text = Annotated[str, msgspec.Meta(max_length=1000)]


class StopOrder(msgspec.Struct, frozen=True, kw_only=True, tag_field="order", tag="stop"):
    """Stop the job within its grace, or at once if `kill`. `message` names who wants it."""

    message: Text = "stopped on request"
    kill: bool = False


class OverrunOrder(msgspec.Struct, frozen=True, kw_only=True, tag_field="order", tag="overrun"):
    """The process `pid` of a replica uses more memory than its share: warn, and start it again if `restart`.

    An empty `message` takes the warning back.
    """

    replica: Text
    pid: int
    message: Text
    restart: bool = False


class PassedOnOrder(msgspec.Struct, frozen=True, kw_only=True, tag_field="order", tag="passed-on"):
    """The launcher of an attached command passes a signal on to the command itself, and to nothing that it started."""


class IdleOrder(msgspec.Struct, frozen=True, kw_only=True, tag_field="order", tag="idle"):
    """The devices of the job do nothing: warn of it, or `end` the job within its grace."""

    message: Text
    end: bool = False


Order = StopOrder | OverrunOrder | PassedOnOrder | IdleOrder

_decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


def give(job: JobStatus, order: Order) -> None:
    """Append the order to the job's orders and wake its supervisor. It returns at once.

    Where the job's status cannot be read, so that its pid is unknown, the supervisor finds the order within seconds.
    Raises NotFound if the job is over or has no supervisor, HostFault if the order cannot be written or is not allowed.
    """
    pid, directory = job.supervisor_pid, JobDirectory(Path(job.run_dir))
    runs = directory.is_guarded() if pid is None else is_alive(job)
    if job.state in JOB_TERMINAL or not runs:
        raise NotFound(f"{job.id} is not running: it is {job.state}", "see `gpusched ps` for the jobs that are")
    path = directory.orders
    line = b"\n" + msgspec.json.encode(order) + b"\n"  # the first ends a line whose writer was killed in it
    try:
        append_regular(path, line)
        if pid is not None:
            os.kill(pid, signal.SIGHUP)
            wake(pid)
    except ProcessLookupError:
        raise NotFound(f"{job.id} has just ended", "see `gpusched ps`") from None
    except OSError as error:
        hint = "make room or move it away, or ask the owner of the job"
        raise HostFault(f"cannot give an order to {job.id}: {path}: {error.strerror}", hint) from None


def end_of(path: Path) -> int:
    """Return the position after all that `path` holds now: orders before it were for an earlier attempt."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def read_new(path: Path, position: int, complain: Callable[[str], None] | None = None) -> tuple[list[Order], int]:
    """Return the orders from `position` on and the position after the last whole line of them.

    What cannot be read gives no order now. A line that is no order is passed over, and `complain` gets the reason.
    """
    orders: list[Order] = []
    size = end_of(path)
    if size < position:  # the file was begun again
        position = 0
    position = max(position, size - _MOST_UNREAD)
    while position < size:
        lines, position = _whole_lines(path, position)
        if not lines:
            break
        for line in filter(None, map(bytes.strip, lines)):
            try:
                orders.append(_decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if complain is not None:
                    complain(f"{path}: a line that is no order: {error}")
    return orders, position


def _whole_lines(path: Path, position: int) -> tuple[list[bytes], int]:
    with contextlib.suppress(OSError):
        chunk, begin = read_from(path, position, _CHUNK)
        whole = chunk.rfind(b"\n") + 1
        if not whole and len(chunk) == _CHUNK:  # no order is that long: pass over it, piece by piece
            whole = _CHUNK
        return chunk[:whole].splitlines(), begin + whole
    return [], position
