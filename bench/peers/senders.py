"""The ways by which weights can go from one process to many, each written as its users write it."""

import pickle
from collections.abc import Callable, Sequence
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, Final

import numpy as np
import zmq

from bench.peers.children import Pipe
from bench.peers.layers import SHAPES, made
from gpusched.channel import Actor, Learner, Limits

__all__ = [
    "Files",
    "OncePickled",
    "Ours",
    "PickledForEach",
    "Published",
    "Routed",
    "Sender",
    "SharedMemory",
]

Take = Callable[[], Sequence[Any]]
"""Waits for the next version, and returns its arrays."""

_LOAD: Final = b"load"
_NAMES: Final = [f"layer_{index}" for index in range(len(SHAPES))]


class Sender:
    """Made before the receivers are forked; then each process opens its own end."""

    def __init__(self) -> None:
        self.weights = made()
        self.pipes: Sequence[Pipe] = ()

    def open(self, pipes: Sequence[Pipe]) -> str:
        """Open the sender's end, with a pipe to each receiver; return where the others find it."""
        self.pipes = pipes
        return ""

    def meet(self, receivers: int) -> None:
        """Wait until so many receivers can be sent to."""

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Open the end of receiver `rank`; `pipe` leads to the sender."""
        raise NotImplementedError

    def give(self) -> None:
        """Give the weights to all receivers."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what the sender took."""


class Files(Sender):
    """A file that all read when they are told to: the original's way, with the framework's share left out."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self._path = Path(home) / "weights.npz"

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Read the file for each word that comes."""
        del address, rank

        def take() -> Sequence[Any]:
            pipe.recv_bytes()
            with np.load(self._path) as file:
                return [file[name] for name in file.files]

        return take

    def give(self) -> None:
        """Write the file, then tell everybody."""
        np.savez(self._path, *self.weights)
        for pipe in self.pipes:
            pipe.send_bytes(_LOAD)


class PickledForEach(Sender):
    """multiprocessing.Pipe, as it is used at first: the same arrays sent to one after the other."""

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Read what was pickled."""
        del address, rank
        return pipe.recv

    def give(self) -> None:
        """Pickle them for each."""
        for pipe in self.pipes:
            pipe.send(self.weights)


class OncePickled(PickledForEach):
    """The same, pickled once for all."""

    def give(self) -> None:
        """Pickle them, then write the same bytes to each."""
        pickled = pickle.dumps(self.weights, 5)
        for pipe in self.pipes:
            pipe.send_bytes(pickled)


class Routed(Sender):
    """ZeroMQ's ROUTER to a DEALER in each receiver; nothing is copied in Python."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._routes: list[bytes] = []

    def open(self, pipes: Sequence[Pipe]) -> str:
        """Bind."""
        super().open(pipes)
        return self._bind(zmq.ROUTER)

    def meet(self, receivers: int) -> None:
        """Hear from each."""
        self._routes = [self._socket.recv_multipart()[0] for _ in range(receivers)]

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Connect, and say hello."""
        del pipe, rank
        link = zmq.Context().socket(zmq.DEALER)
        link.connect(address)
        link.send(b"hello")
        return lambda: _views(link)

    def give(self) -> None:
        """Send the same frames to each."""
        frames = [zmq.Frame(array, copy=False) for array in self.weights]
        for route in self._routes:
            self._socket.send_multipart([route, *frames], copy=False)

    def close(self) -> None:
        """Close."""
        self._context.destroy(linger=0)

    def _bind(self, kind: int) -> str:
        self._context = zmq.Context()
        self._socket = self._context.socket(kind)
        if kind == zmq.XPUB:
            self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # every subscriber is told of, not only the first
        self._socket.bind(self._endpoint)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)


class Published(Routed):
    """ZeroMQ's PUB to a SUB in each receiver."""

    def open(self, pipes: Sequence[Pipe]) -> str:
        """Bind an XPUB: a PUB that tells who subscribes."""
        self.pipes = pipes
        return self._bind(zmq.XPUB)

    def meet(self, receivers: int) -> None:
        """Hear of each subscription."""
        for _ in range(receivers):
            self._socket.recv()

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Subscribe."""
        del pipe, rank
        link = zmq.Context().socket(zmq.SUB)
        link.subscribe(b"")
        link.connect(address)
        return lambda: _views(link)

    def give(self) -> None:
        """Send them once."""
        self._socket.send_multipart(self.weights, copy=False)


def _views(link: "zmq.Socket[bytes]") -> Sequence[Any]:
    frames = link.recv_multipart(copy=False)
    return [np.frombuffer(frame.buffer, np.float32).reshape(shape) for frame, shape in zip(frames, SHAPES, strict=True)]


class SharedMemory(Sender):
    """multiprocessing.shared_memory, and a word over the pipes.

    `copied`: every receiver copies the weights, as it must where the next version is written over this one at any
    time. Without, it is the limit: nobody could say which version it reads, or whether it reads one.
    """

    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self._copied = copied
        size = sum(array.nbytes for array in self.weights)
        self._memory = shared_memory.SharedMemory(create=True, size=size)
        self._memory.unlink()  # it lasts until the last process that has it mapped ends, however that ends
        self._there = self._views()

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Copy, or look, for each word that comes."""
        del address, rank
        own = [np.zeros_like(array) for array in self._there]

        def take() -> Sequence[Any]:
            pipe.recv_bytes()
            if not self._copied:
                return self._there
            for mine, array in zip(own, self._there, strict=True):
                np.copyto(mine, array)
            return own

        return take

    def give(self) -> None:
        """Write them where all see them, then tell everybody."""
        for there, array in zip(self._there, self.weights, strict=True):
            np.copyto(there, array)
        for pipe in self.pipes:
            pipe.send_bytes(_LOAD)

    def close(self) -> None:
        """Give the memory back."""
        self._there = []
        self._memory.close()

    def _views(self) -> list[Any]:
        found, offset = [], 0
        for array in self.weights:
            found.append(np.ndarray(array.shape, array.dtype, self._memory.buf, offset))
            offset += array.nbytes
        return found


class Ours(Sender):
    """gpusched.channel: Learner.publish, Actor.weights; a version is whole, whenever it is read and however long."""

    def __init__(self, endpoint: str, *, share_memory: bool = True) -> None:
        super().__init__()
        self._endpoint, self._limits = endpoint, Limits(share_memory=share_memory)

    def open(self, pipes: Sequence[Pipe]) -> str:
        """Make the Learner."""
        super().open(pipes)
        self._learner = Learner(self._endpoint, limits=self._limits)
        self._learner.publish(dict(zip(_NAMES, self.weights, strict=True)))
        return self._learner.endpoint

    def receiver(self, pipe: Pipe, address: str, rank: int) -> Take:
        """Make the Actor, and have the first version."""
        del pipe
        actor = Actor(address, name=f"actor.{rank}", limits=self._limits)
        had = actor.weights().version

        def take() -> Sequence[Any]:
            nonlocal had
            weights = actor.weights(newer_than=had)
            had = weights.version
            return [weights.arrays[name] for name in _NAMES]

        return take

    def give(self) -> None:
        """Publish them."""
        self._learner.publish(dict(zip(_NAMES, self.weights, strict=True)))

    def close(self) -> None:
        """Close."""
        self._learner.close()
