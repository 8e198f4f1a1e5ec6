"""Writes all that an interpreter finds in its process, as JSON, into the file it is given; it ends at once."""

import sys

preloaded = "preloaded" in sys.modules

import gc  # noqa: E402 (what has been imported before is what matters)
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


def proc(name: str) -> str:
    return (Path("/proc/self") / name).read_bytes().decode(errors="surrogateescape")


def stream(one: Any) -> list[object]:
    return [one.encoding, one.errors, one.line_buffering, one.write_through, one.name, one.mode, one.newlines]


told = {
    "preloaded": preloaded,
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "executable": sys.executable,
    "path": sys.path,
    "main": sorted(name for name in globals() if name.startswith("__")),
    "file": __file__,
    "loader": type(globals()["__loader__"]).__name__,
    "cwd": str(Path.cwd()),
    "environ": dict(os.environ),
    "cmdline": proc("cmdline"),
    "proc environ": sorted(proc("environ").split("\0")),
    "comm": proc("comm"),
    "cpus": sorted(os.sched_getaffinity(0)),
    "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())[:-1],
    "streams": [str(Path(f"/proc/self/fd/{number}").readlink()) for number in (0, 1)],
    "leads": os.getpid() == os.getsid(0) == os.getpgrp(),
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "handlers": {number: repr(signal.getsignal(number)) for number in signal.valid_signals()},
    "signals": [line for line in proc("status").splitlines() if line.startswith(("SigIgn", "SigCgt", "SigBlk"))],
    "stdout": stream(sys.stdout),
    "stderr": stream(sys.stderr),
    "gc": [gc.isenabled(), gc.get_threshold()],
    "tempdir": tempfile.gettempdir(),
    "threads": len(list(Path("/proc/self/task").iterdir())),
    "umask": os.umask(0o77),
}
target = Path(sys.argv[1])
unfinished = target.with_name(f"{target.name}.tmp")  # of this process alone: others write beside it
unfinished.write_text(json.dumps(told))
unfinished.replace(target)
