"""The other end of ready.py: waits until so many processes are ready, and tells them what to do next."""

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers.ready import END

__all__ = ["Gathering", "gathering", "require_all"]


class Gathering:
    """A socket on which processes tell that they are ready; they wait on it for what comes next."""

    def __init__(self, path: str, listening: socket.socket) -> None:
        self.path = path
        self._listening = listening
        self._links: list[socket.socket] = []

    def wait(self, count: int, patience_s: float) -> list[bool]:
        """Return, once `count` processes more are ready, whether each gave numbers; fewer if the time passes before."""
        deadline = time.monotonic() + patience_s
        answers: list[bool] = []
        with contextlib.suppress(TimeoutError):
            while len(answers) < count:
                self._listening.settimeout(max(0.01, deadline - time.monotonic()))
                link, _ = self._listening.accept()
                self._links.append(link)
                answers.append(_answer(link, deadline) == 1)
        return answers

    def tell(self, order: bytes) -> None:
        """Tell all processes what to do."""
        for link in self._links:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(order)

    def answers(self, patience_s: float) -> list[int | None]:
        """Return the number that each process answers, None for one that does not in time."""
        deadline = time.monotonic() + patience_s
        return [_answer(link, deadline) for link in self._links]

    def end(self) -> None:
        """Tell all processes to end, and forget them."""
        self.tell(END)
        for link in self._links:
            link.close()
        self._links.clear()


def _answer(link: socket.socket, deadline: float) -> int | None:
    told = b""
    try:
        while not told.endswith(b"\n"):
            link.settimeout(max(0.01, deadline - time.monotonic()))
            part = link.recv(64)
            if not part:
                return None
            told += part
    except (TimeoutError, ConnectionResetError):
        return None
    return int(told.split()[1])


@contextlib.contextmanager
def gathering() -> Iterator[Gathering]:
    """Give a socket in a new directory; who waits on it is told to end with the block."""
    with tempfile.TemporaryDirectory(prefix="gpusched-bench-") as folder, socket.socket(socket.AF_UNIX) as listening:
        path = str(Path(folder) / "ready")
        listening.bind(path)
        listening.listen(128)
        gathered = Gathering(path, listening)
        try:
            yield gathered
        finally:
            gathered.end()


def require_all(answers: Sequence[bool], count: int) -> None:
    """Exit unless so many processes were ready and gave numbers: the rest would be no measurement."""
    if list(answers) != [True] * count:
        raise SystemExit(f"{len(answers)} of {count} processes were ready, {sum(answers)} of them with numbers")
