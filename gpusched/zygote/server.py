"""The zygote: `python -m gpusched.zygote.server FD MODULE...` imports once what all replicas of a job need.

Then it forks a replica whenever the supervisor asks for one over the socket FD. It stays single-threaded and uses
nothing of what it imports: a fork gets one thread only, and every lock as it was. Where an import leaves more than
modules behind, it refuses, and ends. The supervisor's side is client.py.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gpusched.frameworks.forking import obstacle_to_fork
from gpusched.zygote.protocol import DESCRIPTORS, Forked, Loading, Ready, Refused, ZygoteMessage
from gpusched.zygote.replica import Fresh, Order, become

__all__ = ["load", "serve"]

_LONGEST_MESSAGE: Final = 1000  # an error may be longer than a packet; all of it is in the zygote's log
_MOST_DESCRIPTORS: Final = 253  # of a packet (unix(7)); a supervisor has 8 replicas started at a time
_THREADS_PATIENCE_S: Final = 0.5  # the kernel lists a thread for a moment longer than Python has joined it


def load(modules: Sequence[str], report: Callable[[Loading | Refused], None]) -> bool:
    """Import the modules; return whether this process may be forked now. What fails goes to stderr as well.

    It leaves the garbage collection off.
    """
    gc.disable()  # a quarter of the time of TensorFlow's import goes into collections that find nothing
    if not modules and (obstacle := _further_threads()) is not None:  # such as those that a fork starts
        report(Refused(message=f"it cannot be forked: {obstacle}"))
        return False
    for module in modules:
        report(Loading(module=module))
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 (also SystemExit: whatever a module does, replicas start)
            traceback.print_exc()
            why = f"import {module}: {type(error).__name__}: {error}"[:_LONGEST_MESSAGE].rstrip(": ")
            report(Refused(message=why))
            return False
        obstacle = obstacle_to_fork() or _further_threads()
        if obstacle is not None:
            report(Refused(message=f"after the import of {module} it cannot be forked: {obstacle}"))
            return False
    return True


def serve(control: socket.socket, modules: Sequence[str]) -> Order | None:
    """Import the modules, and fork as often as the supervisor asks for it, until it closes its end of `control`.

    Returns in each fork, with its order, and None in the zygote itself. A fork first becomes the leader of a session:
    from the moment in which the supervisor knows of it, a signal to its group reaches it, and one to the zygote's not.
    """

    def send(message: ZygoteMessage) -> None:
        control.send(msgspec.msgpack.encode(message))

    with contextlib.suppress(BrokenPipeError, ConnectionError):  # the supervisor is gone, or wants it no more
        if not load(modules, send):
            return None
        _open_streams()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # a fork gets them when it is the replica
        gc.freeze()  # or the first collection of each fork would write to, and so copy, every page of objects
        send(Ready())
        while (orders := _receive_orders(control)) is not None:
            mine = _fork(orders, send)
            for order in orders:
                if order is not mine:
                    order.close()
            if mine is not None:
                control.close()
                return mine
    return None


def _receive_orders(control: socket.socket) -> list[Order] | None:
    """Wait for a request. Returns None once the other end is closed, or where not all that comes with it could be."""
    count, found, _, _ = socket.recv_fds(control, 16, _MOST_DESCRIPTORS)
    if not count.isdigit() or len(found) != int(count) * DESCRIPTORS:
        return None
    return [Order(found[begin : begin + DESCRIPTORS]) for begin in range(0, len(found), DESCRIPTORS)]


def _fork(orders: list[Order], send: Callable[[Forked], None]) -> Order | None:
    """Fork a replica for each order, report them to the supervisor. Returns the replica's own in each of them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a module may have closed or replaced it
            stream.flush()
    read, write = os.pipe()
    try:
        middle = os.fork()
    except OSError as error:
        os.close(write)
        send(Forked(pids=(None,) * len(orders), message=str(error.strerror)))
    else:
        if middle == 0:
            os.close(read)
            return _fork_each(orders, write)
        os.close(write)
        with contextlib.suppress(ChildProcessError):  # a module ignores SIGCHLD
            os.waitpid(middle, 0)  # from now on the replicas are children of the supervisor, a subreaper
        send(_forked(read, len(orders)))
    os.close(read)
    return None


def _fork_each(orders: Sequence[Order], write: int) -> Order:
    """Fork a replica for each order, and end. Returns only in the replicas, which have put their pids into `write`."""
    for number, order in enumerate(orders):
        try:
            replica = os.fork() == 0
        except OSError:
            os._exit(1)
        if replica:
            os.setsid()
            os.write(write, b"%d %d\n" % (number, os.getpid()))
            os.close(write)
            return order
    os._exit(0)


def _forked(read: int, asked: int) -> Forked:
    """Return the pids that the replicas have written, once each of them has closed its end."""
    with open(read, "rb", closefd=False) as pipe:
        pairs = [line.split() for line in pipe]
    pids = {int(number): int(pid) for number, pid in pairs}
    return Forked(
        pids=tuple(map(pids.get, range(asked))),
        message="" if len(pids) == asked else "the system allows no more processes",
    )


def _open_streams() -> None:
    """Open the streams that a module has closed, or what comes with a request would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 (stderr)
        pass
    os.close(descriptor)


def _further_threads() -> str | None:
    """Return which threads there are beside this one; none of them is harmless to a fork that we know of."""
    deadline = time.monotonic() + _THREADS_PATIENCE_S
    while len(found := os.listdir("/proc/self/task")) > 1:  # noqa: PTH208 (pathlib is heavy)
        if time.monotonic() > deadline:
            names = sorted(_name(thread) for thread in found if int(thread) != os.getpid())
            return f"it has left {len(names)} more thread{'s' if len(names) > 1 else ''} ({', '.join(names[:4])})"
        time.sleep(0.01)
    return None


def _name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return "ended"


def main() -> None:
    """Be a zygote, and in each fork the replica: its program runs in here, at the bottom of the stack."""
    fresh = Fresh()
    order = serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    if order is None:
        os._exit(0)  # what modules do at an end is for replicas
    become(order, fresh)


if __name__ == "__main__":
    main()
