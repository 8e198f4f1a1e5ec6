"""The messages between the supervisor and a zygote, and which commands a fork can stand for. No I/O.

A message is one packet of msgpack, never pickle. A request for forks is too large for a packet where environments are:
the packet has their number. What is asked of each lies in a memory file, whose descriptor comes with the packet, before
the replica's three streams and its gate.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpusched.model.job import ProcessAttributes

__all__ = [
    "DESCRIPTORS",
    "Command",
    "ForkRequest",
    "Forked",
    "Loading",
    "Ready",
    "Refused",
    "ZygoteMessage",
    "as_bytes",
    "command_of",
    "settles_at_start",
]

DESCRIPTORS: Final = 5
"""What comes with a request for each of its replicas: the memory file, stdin, stdout, stderr, and the gate."""

_AT_START: Final = re.compile(r"PYTHON|LD_|GLIBC_TUNABLES|MALLOC_|LANG$|LC_")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A Python command line, read: `python [-u] [-P] -m TARGET ARGUMENTS`, or without the `-m` for a file.

    `safe_path` is -P, which the interpreter that a fork has must have been started with, too.
    """

    target: str
    module: bool
    unbuffered: bool
    safe_path: bool
    arguments: tuple[str, ...]


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The replica that a fork is to become, in bytes as the kernel has them. `cpus` are those it runs on, none for all.

    `threads` is how many it computes with, `parent` the pid of the supervisor, without which it must not run.
    `attributes` as of JobSpec.
    """

    argv: tuple[bytes, ...]
    env: tuple[tuple[bytes, bytes], ...]
    cwd: bytes
    cpus: tuple[int, ...]
    threads: int
    parent: int
    attributes: ProcessAttributes | None = None


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote, or a fork server, imports `module`."""

    module: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All is imported, and the process can be forked."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The zygote must not be forked and ends; `message` is the reason."""

    message: str


class Forked(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The replicas are these processes, in the order of the request; each leads a session and waits at its gate.

    None where the system allowed no fork; `message` is then the reason.
    """

    pids: tuple[int | None, ...]
    message: str = ""


ZygoteMessage = Loading | Ready | Refused | Forked


def command_of(argv: Sequence[str], interpreter: str, search: str | None = None) -> Command | None:
    """Return `argv` as a command of Python that a fork can stand for, or None.

    It must be run by `interpreter`, under this or another name in the same directory, by which Python finds a virtual
    environment; a name without a directory is found by `search`, which is as PATH. Of the options only -u can be
    given to an interpreter that runs already; with -P it has to run.
    """
    if not argv:
        return None
    found = shutil.which(argv[0], path=search) if search and "/" not in argv[0] else None
    if not _is_same(found or argv[0], interpreter):
        return None
    argv = list(argv[1:])
    options = set[str]()
    while argv[:1] in (["-u"], ["-P"]):
        options.add(argv.pop(0))
    module = argv[:1] == ["-m"]
    del argv[: int(module)]
    if not argv or argv[0].startswith("-") or not (module or argv[0].endswith(".py")):
        return None
    return Command(
        target=argv[0],
        module=module,
        unbuffered="-u" in options,
        safe_path="-P" in options,
        arguments=tuple(argv[1:]),
    )


def settles_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that an interpreter or its C library reads once, when it starts."""
    return {name: value for name, value in env.items() if _AT_START.match(name)}


def as_bytes(env: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Return an environment as the kernel has it."""
    return tuple((os.fsencode(name), os.fsencode(value)) for name, value in env.items())


def _is_same(program: str, interpreter: str) -> bool:
    one, other = Path(program), Path(interpreter)
    if one == other:
        return True
    try:
        return one.parent.resolve() == other.parent.resolve() and one.samefile(other)
    except OSError:
        return False
