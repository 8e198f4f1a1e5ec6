"""A process that has imported what replicas need: its zygote is a fork of it, not a program that imports it once more.

Such a process is a supervisor that a fork server with modules has forked (supervisor/fork_server.py). Its fork gives up
all that the supervisor has, and becomes a zygote at the bottom of the stack, where a program's own end is not ours.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder

from gpusched.linux.processes import die_with
from gpusched.zygote.preload import Imported, Preload, ZygoteForked, imported, note_imported
from gpusched.zygote.process_title import show_as
from gpusched.zygote.protocol import Loading, Refused, as_bytes, settles_at_start
from gpusched.zygote.replica import Fresh, become, take_signals
from gpusched.zygote.server import load, serve
from gpusched.zygote.traces import Traces, descriptors

__all__ = ["be_zygote", "fork_zygote", "import_for_forks"]


def import_for_forks(
    modules: Sequence[str], cwd: str, first: str, path: Sequence[str], report: Callable[[Loading | Refused], None]
) -> bool:
    """Import what the members of an array need; return whether this process may be forked.

    It imports in the directory `cwd`, with the sys.path `path` of an interpreter that has just started, for programs
    that import from the directory `first` before all else. Directory, paths and signals are as before afterwards.
    """
    fresh, ours, home, before = Fresh(), sys.path[:], os.getcwd(), Traces()  # noqa: PTH109
    safe_path = bool(sys.flags.safe_path)
    sys.path[:] = path if safe_path else [cwd, *path[1:]]
    fresh.path = cwd
    settled = settles_at_start(os.environ)
    try:
        os.chdir(cwd)
    except OSError as error:
        report(Refused(message=f"{cwd}: {error.strerror}"))
        return False
    if (hidden := _hidden_module([*([] if safe_path else [cwd]), first])) is not None:
        report(Refused(message=f"{hidden} has the name of a module that gpusched needs: rename it"))
        return False
    if not load(modules, report):
        return False
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a module may have closed or replaced it
            stream.flush()  # or each fork would write it again
    left = Traces().beyond(before) or _fork_fails()
    if left is not None:
        report(Refused(message=f"the imports leave {left}"))
        return False
    note_imported(Imported(Preload(tuple(modules), safe_path, cwd), settled, sys.path[:], fresh))
    sys.path[:] = ours
    os.chdir(home)
    take_signals(fresh.handlers)
    return True


def fork_zygote(have: Imported, env: Mapping[str, str], argv: Sequence[str], control: socket.socket, log: int) -> int:
    """Fork a zygote as it would be executed, and return its pid; raises ZygoteForked in the fork, and OSError.

    `control` is the zygote's end of its socket, which the fork takes, `log` the descriptor that it writes to.
    """
    supervisor = os.getpid()
    zygote = os.fork()
    if zygote != 0:
        return zygote
    try:
        die_with(supervisor)
        os.setsid()
        take_signals(have.fresh.handlers)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, descriptor in enumerate((null, log, log)):
            os.dup2(descriptor, target)
        os.chdir(have.preload.cwd)
        os.environb.clear()
        os.environb.update(dict(as_bytes(env)))
        with suppress(OSError, ValueError):  # ps then shows the supervisor's command line
            show_as([os.fsencode(word) for word in argv], as_bytes(env))
        sys.path[:] = have.path
        mine = control.detach()
    except BaseException:  # noqa: BLE001 (nothing of the supervisor's may run in a fork)
        os._exit(1)
    raise ZygoteForked(mine)


def be_zygote(control: int) -> None:
    """Be the zygote with the socket `control`, and in each of its forks the replica.

    What owned the descriptors of the supervisor is gone by now, or in a cycle; it must not close one that is new.
    """
    gc.collect()
    for descriptor in descriptors() - {control}:
        os.close(descriptor)
    have, own = imported(), socket.socket(fileno=control)
    own.settimeout(None)  # a module may have set another default
    order = serve(own, ())
    if order is None or have is None:
        os._exit(0)  # what modules do at an end is for replicas
    become(order, have.fresh)


def _fork_fails() -> str | None:
    """Return what a first fork has shown that others would have, too."""
    fork = os.fork()
    if fork == 0:
        os._exit(len(os.listdir("/proc/self/task")) - 1)  # noqa: PTH208 (pathlib is heavy)
    return "hooks that start a thread in each fork" if os.waitpid(fork, 0)[1] else None


def _hidden_module(directories: Sequence[str]) -> str | None:
    """Return a file that a program would import from there, or from PYTHONPATH, under the name of a module in here."""
    further = filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    places = [*filter(None, directories), *further]
    for name, module in list(sys.modules.items()):
        mine = getattr(module, "__spec__", None)
        if "." in name or name == "__main__" or mine is None or not mine.has_location:
            continue
        theirs = PathFinder.find_spec(name, places)
        if theirs is None or not theirs.has_location or not theirs.origin or not mine.origin:
            continue
        if os.path.realpath(theirs.origin) != os.path.realpath(mine.origin):
            return theirs.origin
    return None
