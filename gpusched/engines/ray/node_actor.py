"""What Ray runs on each node of a group: it keeps the process of that node, and passes on its input and its output.

Ray gets the class by value, not by name: its own Python on the nodes has Ray and need not have gpusched, so that this
imports nothing of gpusched.
"""

import os
import select
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

__all__ = ["NodeActor", "file_mark", "node_environment"]

_POLL_S: Final = 5.0
_ENDS_WITHIN_S: Final = 10.0
_MOST_READ: Final = 1 << 20
_ERROR_BYTES: Final = 2000
_OF_THE_NODE: Final = ("HOME", "HOSTNAME", "LOGNAME", "SHELL", "TMPDIR", "USER", "CUDA_VISIBLE_DEVICES")
_KINDS_OF_THE_NODE: Final = ("GPUSCHED_", "XDG_")


class NodeActor:
    """Keeps one process. Several of its methods run at the same time, each in a thread of Ray's.

    `leave` ends the process in which the keeper is, with an exit code: `os._exit` where Ray made that process for it.
    """

    def __init__(self, leave: Callable[[int], object]) -> None:
        self._leave = leave
        self._released = threading.Event()
        self._watch: threading.Thread | None = None

    def place(self, path: str) -> tuple[str, str, int, bool, tuple[int, int] | None]:
        """Return host name, address, a port that is free just now, whether Ray asks for a token, and file_mark."""
        import ray

        address = ray.util.get_node_ip_address()
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        return (
            socket.gethostname(),
            address,
            port,
            os.environ.get("RAY_AUTH_MODE", "").lower() == "token",
            file_mark(path),
        )

    def start(self, argv: Sequence[str], environ: Mapping[str, str], order: bytes, patience_s: float) -> None:
        """Start the process, and send it `order`. Raises OSError.

        It is in a new session and needs no death signal: when this process is gone, its input ends, which it takes for
        a wish to end in order. A thread ends it, too, when there was no call of `receive` for `patience_s`: this node
        is cut off. The thread does so until `ended` has returned or `release` is called.
        """
        self._polled_at = time.monotonic()
        self._patience_s = patience_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it is as long there as the process)
        self._process = subprocess.Popen(
            argv,
            env=node_environment(environ, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
        )
        self.send(order)
        self._watch = threading.Thread(target=self._end_unheard, name="end unheard", daemon=True)
        self._watch.start()

    def send(self, line: bytes) -> None:
        """Write to the process. `receive` returns None when it has ended."""
        assert self._process.stdin is not None  # noqa: S101 (it is a pipe)
        with suppress(BrokenPipeError):
            while line:
                line = line[self._process.stdin.write(line) or 0 :]

    def receive(self) -> bytes | None:
        """Return what the process has written, b"" if that is nothing for a while, and None when it has closed it."""
        assert self._process.stdout is not None  # noqa: S101 (it is a pipe)
        self._polled_at = time.monotonic()
        output = self._process.stdout.fileno()
        if not select.select([output], [], [], _POLL_S)[0]:
            return b""
        return os.read(output, _MOST_READ) or None

    def ended(self) -> tuple[int, str]:
        """Return the exit code of the process (subprocess: below zero for a signal), and the end of its complaints."""
        code = self._process.wait(_ENDS_WITHIN_S)
        self.release()
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _ERROR_BYTES))
        return code, self._errors.read().decode(errors="replace").strip()

    def release(self) -> None:
        """End the thread that ends the process, and this one, where there is no call of `receive`. The process goes on.

        Where the patience is over by now, it returns when the process has ended.
        """
        self._released.set()
        if self._watch is not None:
            self._watch.join()

    def _end_unheard(self) -> None:
        """End the process once `receive` is not called, and then leave: Ray may still count its resources as taken."""
        while (left := self._polled_at + self._patience_s - time.monotonic()) > 0:
            if self._released.wait(left):
                return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if not self._released.is_set():
            self._leave(1)


def node_environment(sent: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """Return that of the process: as `sent`, but for what is this node's: its user, its devices, its gpusched."""
    own = {name: value for name, value in here.items() if _is_the_nodes(name)}
    return {name: value for name, value in sent.items() if not _is_the_nodes(name)} | own


def file_mark(path: str) -> tuple[int, int] | None:
    """Return what identifies a file on each host that shares its file system; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 (a text is what is sent)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _is_the_nodes(name: str) -> bool:
    return name in _OF_THE_NODE or name.startswith(_KINDS_OF_THE_NODE)
