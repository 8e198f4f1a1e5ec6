"""The fork server: `python -m gpusched.supervisor.fork_server FD` forks guards that have imported everything already.

The daemon starts one when starts come quickly, and asks for guards over the socket FD (daemon/fork_client.py). It ends
when the other end is closed; its guards go on. It stays single-threaded, and reads no request itself: what a job has in
its environment is in no process but its own. It imports what a guard and a supervisor do, at once or later.

With `FD CWD FIRST MODULE...` it serves one array: it imports the modules in the directory CWD as well, for members that
import from FIRST (or from nowhere, if that is empty) before all else. Their zygotes are forks then, too.
"""

import gc
import sys

from gpusched.interpreter import own_modules_first

_PATH = sys.path[:]
if __name__ == "__main__":
    gc.disable()
    own_modules_first()
import contextlib  # noqa: E402 (after the line above, as all that follow)
import encodings.ascii  # noqa: E402, F401 (a fork needs it)
import os  # noqa: E402
import select  # noqa: E402
import shutil  # noqa: E402, F401 (a fork needs it)
import signal  # noqa: E402
import socket  # noqa: E402
import traceback  # noqa: E402
from typing import Final  # noqa: E402

import msgspec  # noqa: E402

from gpusched.execution.spec import JobSpec  # noqa: E402
from gpusched.frameworks.registry import frameworks  # noqa: E402
from gpusched.linux.processes import die_with  # noqa: E402
from gpusched.supervisor import runner  # noqa: E402, F401 (a fork needs it)
from gpusched.supervisor.fork_request import DESCRIPTORS, ForkServerMessage, GuardEnded, GuardRequest  # noqa: E402
from gpusched.supervisor.guard import guard  # noqa: E402
from gpusched.zygote.preload import ZygoteForked  # noqa: E402
from gpusched.zygote.process_title import show_as  # noqa: E402
from gpusched.zygote.protocol import Ready  # noqa: E402

__all__ = ["ForkServer", "main"]

_NOT_STARTED: Final = 5
_MOST_NONCE: Final = 200
_MOST_DESCRIPTORS: Final = 64  # more than a fork server ever has open: imports that leave files open are refused


class ForkServer:
    """Forks a guard for each request on `control`, and reports there which of them have ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._nonces: dict[int, str] = {}
        self._wakeup, self._outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Fork and reap until the other end is closed. In a fork it never returns, but a zygote leaves it."""
        signal.set_wakeup_fd(self._outer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        poller = select.poll()
        for descriptor in (self._control.fileno(), self._wakeup):
            poller.register(descriptor, select.POLLIN)
        with contextlib.suppress(BrokenPipeError, ConnectionError):  # the daemon is gone
            self.send(Ready())
            while True:
                ready = [descriptor for descriptor, _ in poller.poll()]
                if self._wakeup in ready:
                    self._reap()
                if self._control.fileno() in ready and not self._answer():
                    return

    def _answer(self) -> bool:
        """Fork what the next request is for; return False once the other end is closed."""
        nonce, descriptors, _, _ = socket.recv_fds(self._control, _MOST_NONCE, DESCRIPTORS)
        if len(descriptors) != DESCRIPTORS:
            return False
        request, log = descriptors
        try:
            guard = os.fork()
        except OSError as error:
            with contextlib.suppress(OSError):  # such as a full disk
                os.write(log, f"nothing is started: no process could be forked: {error.strerror}\n".encode())
            self.send(GuardEnded(nonce=nonce.decode()))
        else:
            if guard == 0:
                self._control.detach()  # or its end would close what has its number then
                _be_guard(request, log)
            self._nonces[guard] = nonce.decode()
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wakeup, 4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self.send(GuardEnded(nonce=self._nonces.pop(pid, "")))

    def send(self, message: ForkServerMessage) -> None:
        """Send a message to the daemon. Raises OSError."""
        self._control.send(msgspec.msgpack.encode(message))


def _be_guard(request: int, log: int) -> None:
    """Be what an exec would have given (execution/start.py, spawn), and then the guard, to its end.

    It ends without the interpreter's own clearing up, which would copy every page of objects only to drop it.
    Raises ZygoteForked in a zygote of its supervisor.
    """
    code = 1
    try:
        os.setsid()
        code = _guard(request, log)
    except ZygoteForked:
        raise
    except BaseException as error:  # noqa: BLE001 (nothing of the server's may run in a fork)
        with contextlib.suppress(Exception):
            traceback.print_exception(error)
            print(f"nothing is started: {type(error).__name__}: {error}", file=sys.stderr)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _guard(request: int, log: int) -> int:
    for stream in (1, 2):
        os.dup2(log, stream)
    content = os.pread(request, os.fstat(request).st_size, 0)
    asked = msgspec.msgpack.decode(content, type=GuardRequest)
    if not show_as(asked.argv, asked.env):  # others know a guard by it (execution/relatives.py)
        raise OSError(0, "the kernel does not let a process show another command")
    os.closerange(3, _MOST_DESCRIPTORS)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environb.clear()
    os.environb.update(dict(asked.env))
    gc.enable()
    directory, nonce = asked.argv[-2:]
    return guard(os.fsdecode(directory), nonce.decode())


def _shows_another_command() -> bool:
    """Return whether this kernel lets a process show another command; it goes on to show its own."""
    with contextlib.suppress(OSError, ValueError):
        return show_as([os.fsencode(word) for word in sys.orig_argv], list(os.environb.items()))
    return False


def main(descriptor: int, *preload: str) -> int:
    """Be the fork server of the process that has the other end of the socket `descriptor`.

    In a fork that is a zygote, or a replica of it, that is its program.
    """
    frameworks()
    msgspec.msgpack.Decoder(GuardRequest)  # the first one of a type reads the annotations of all its fields
    msgspec.json.Decoder(JobSpec)
    if not _shows_another_command():
        print("no fork server: this kernel does not let a process show another command", file=sys.stderr)
        return _NOT_STARTED
    if not preload:
        _serve(ForkServer(socket.socket(fileno=descriptor)))
        return 0
    from gpusched.zygote.preloaded import be_zygote

    try:
        _serve_array(descriptor, *preload)
    except ZygoteForked as forked:
        control = forked.control
    be_zygote(control)  # out here nothing of the supervisor is left, and no exception that is handled
    return 0


def _serve(server: ForkServer) -> None:
    gc.collect()
    gc.freeze()  # or the first collection of each fork would write to, and so copy, every page of objects
    server.serve()


def _serve_array(descriptor: int, cwd: str, first: str, *modules: str) -> None:
    """Import for an array, and serve it; then end, with what an import has started.

    What modules do at the end of a process is not done: it is for replicas. Raises ZygoteForked in a zygote.
    """
    from gpusched.zygote.preloaded import import_for_forks

    die_with(os.getppid())  # an import may take for ever
    server = ForkServer(socket.socket(fileno=descriptor))
    if import_for_forks(modules, cwd, first, _PATH, server.send):
        _serve(server)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
