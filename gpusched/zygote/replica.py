"""A fork of the zygote becomes a replica: all that exec would have given it, and then its program as `__main__`.

Nothing of a framework may run before `become` has set environment, directory, CPUs and limit.
"""

import contextlib
import gc
import io
import os
import runpy
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

import msgspec

from gpusched.frameworks import limit_memory
from gpusched.frameworks.forking import renew_after_fork
from gpusched.linux.attributes import apply_attributes
from gpusched.linux.processes import die_with
from gpusched.zygote.process_title import show_as
from gpusched.zygote.protocol import Command, ForkRequest, command_of

__all__ = ["Fresh", "Order", "become", "take_signals"]

_kept: list[ModuleType] = []


class Fresh:
    """What this interpreter had when it had just started, before modules changed it."""

    def __init__(self) -> None:
        self.handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self.path = sys.path[0]


class Order:
    """What a fork was made for: the request's memory file, the replica's streams, and the gate it waits at."""

    def __init__(self, descriptors: Sequence[int]) -> None:
        self.request, *streams, self.gate = descriptors
        self.streams = tuple(streams)

    def close(self) -> None:
        """Close all that came with the request."""
        for descriptor in (self.request, *self.streams, self.gate):
            os.close(descriptor)


def become(order: Order, fresh: Fresh) -> None:
    """Wait until the supervisor knows this process, then be the replica it asked for, to its end.

    Ends as the program does: also by SystemExit or another exception, of which the traceback is printed.
    """
    if not os.read(order.gate, 1):  # the supervisor is gone, or has started the replica in another way
        os._exit(0)
    request = _read(order)
    die_with(request.parent)
    take_signals(fresh.handlers)
    for target, descriptor in enumerate(order.streams):
        os.dup2(descriptor, target)
    order.close()
    argv = [os.fsdecode(word) for word in request.argv]
    command = command_of(argv, sys.executable, os.fsdecode(dict(request.env).get(b"PATH", b"")))
    if command is None:
        sys.exit(f"{argv[0]}: no fork can stand for this command")
    try:
        _settle(request, command, argv)
        _find_imports(command, fresh.path)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error}")
    _run(command)


def _read(order: Order) -> ForkRequest:
    size = os.fstat(order.request).st_size
    return msgspec.msgpack.decode(os.pread(order.request, size, 0), type=ForkRequest)


def take_signals(handlers: Mapping[signal.Signals, Any]) -> None:
    """Undo what was done to signals since the interpreter had these handlers."""
    signal.set_wakeup_fd(-1)
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _settle(request: ForkRequest, command: Command, argv: list[str]) -> None:
    """Take on the request's directory, CPUs, environment and limit, in this order. Raises OSError."""
    os.chdir(request.cwd)
    if request.cpus:
        with contextlib.suppress(OSError):  # a CPU taken away in this moment must not fail the start
            os.sched_setaffinity(0, request.cpus)
    if request.attributes is not None:
        apply_attributes(request.attributes)
    os.environb.clear()
    os.environb.update(dict(request.env))
    with contextlib.suppress(OSError, ValueError):  # ps then shows the zygote's command line
        show_as(request.argv, request.env)
    sys.orig_argv[:] = argv
    sys.argv[:] = ["-m" if command.module else command.target, *command.arguments]
    if command.unbuffered:
        _unbuffer()
    tempfile.tempdir = None  # it was found in the zygote's environment
    renew_after_fork(request.threads)
    try:
        limit_memory()
    except Exception as error:  # noqa: BLE001 (as the import hook does it: a script must run on)
        print(f"gpusched: the memory limit is NOT applied: {error}", file=sys.stderr)
    gc.enable()


def _find_imports(command: Command, first: str) -> None:
    """Have the program import from where it would, in the place of `first`: modules may have put paths before it."""
    if sys.flags.safe_path:
        return
    path = os.getcwd() if command.module else os.path.dirname(os.path.realpath(command.target))  # noqa: PTH109, PTH120
    place = sys.path.index(first) if first in sys.path else 0
    sys.path[place : place + (first in sys.path)] = [path]


def _unbuffer() -> None:
    """Do what `python -u` does to the streams that are written to."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        old, raw = getattr(sys, f"__{name}__"), io.FileIO(descriptor, "w", closefd=False)
        new = io.TextIOWrapper(raw, old.encoding, old.errors, newline="\n", write_through=True)
        raw.name, new.mode = f"<{name}>", "w"  # type: ignore[misc]  # as Python's own start does it
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _run(command: Command) -> None:
    """Run the program. The traceback that it may end with begins where it would without us."""
    try:
        if command.module:
            _run_module(command.target)
        else:
            _run_file(command.target)
    except SystemExit:
        raise
    except BaseException as error:
        trace = _within(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.excepthook = lambda *_: None
        raise  # the interpreter does the rest: atexit, the exit code, the signal of a KeyboardInterrupt


def _run_module(name: str) -> None:
    existing = sys.modules.get(name)
    if existing is not None and not hasattr(existing, "__path__"):
        del sys.modules[name]  # preloaded for what it imports; runpy would warn of two of it
    _fresh_main()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001 (it is what `python -m` calls)


def _run_file(name: str) -> None:
    path = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118 (unlike pathlib it leaves `..` as Python does)
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = _fresh_main()
    main.__dict__.update(__file__=path, __loader__=SourceFileLoader("__main__", path), __cached__=None)
    exec(code, main.__dict__)  # noqa: S102 (it is what `python FILE` does)


def _fresh_main() -> ModuleType:
    """Put an empty `__main__` in the place of the zygote's, which lives on in what still runs of it."""
    import builtins

    _kept.append(sys.modules["__main__"])
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    return main


def _within(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this module."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
