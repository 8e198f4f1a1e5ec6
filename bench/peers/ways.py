"""The ways by which a batch can go from an actor's process to the learner's, each written as its users write it."""

import multiprocessing
import pickle
import socket
from typing import Any, Final

import msgspec
import numpy as np
import zmq

from gpusched.channel import Actor, Batch, Learner, Limits

__all__ = ["Ours", "Pickle5", "Pipes", "UnixSocket", "Way", "ZeroMQ"]

_ACKNOWLEDGED: Final = b"k"
_NAMES: Final = ("frames", "actions", "values")
_KEPT_BACK: Final = 4  # batches that may wait in a socket of ZeroMQ


class Way:
    """Made before the fork; then each process opens its own end. What is sent without a wait is a stream."""

    def open_learner(self) -> str:
        """Open the learner's end; return where the actor's finds it."""
        return ""

    def open_actor(self, address: str) -> None:
        """Open the actor's end."""

    def send(self, batch: Any) -> None:
        """Send a batch, and do not wait for an acknowledgement."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the acknowledgement of the batch that was sent last."""
        raise NotImplementedError

    def exchange(self, batch: Any) -> None:
        """Send a batch, and return when its acknowledgement is back."""
        self.send(batch)
        self.wait()

    def receive(self) -> Any:
        """Return the next batch: frames, actions, values."""
        raise NotImplementedError

    def acknowledge(self) -> None:
        """Tell the actor that its batch was received."""
        raise NotImplementedError

    def close_learner(self) -> None:
        """Give back what open_learner took."""

    def close_actor(self) -> None:
        """Give back what open_actor took."""


class Pipes(Way):
    """multiprocessing.Pipe and its pickle, of lists (the original) or of arrays."""

    def __init__(self) -> None:
        self.learner, self.actor = multiprocessing.Pipe()

    def send(self, batch: Any) -> None:
        """Pickle it and write it."""
        self.actor.send(batch)

    def receive(self) -> Any:
        """Read it and unpickle it."""
        return self.learner.recv()

    def acknowledge(self) -> None:
        """Write one byte."""
        self.learner.send_bytes(_ACKNOWLEDGED)

    def wait(self) -> None:
        """Read it."""
        self.actor.recv_bytes()


class Pickle5(Pipes):
    """The same with the arrays beside the pickle (PEP 574), so that pickle copies none of them."""

    def send(self, batch: Any) -> None:
        """Write the pickle, then each array from where it lies."""
        buffers: list[pickle.PickleBuffer] = []
        self.actor.send_bytes(pickle.dumps(batch, 5, buffer_callback=buffers.append))
        for buffer in buffers:
            self.actor.send_bytes(buffer.raw())

    def receive(self) -> Any:
        """Read all of it; the arrays are views on what was read."""
        head = self.learner.recv_bytes()
        return pickle.loads(head, buffers=[self.learner.recv_bytes() for _ in _NAMES])  # noqa: S301 (one process tree)


class ZeroMQ(Way):
    """pyzmq as a careful person writes it: a small header, the arrays as frames that neither side copies in Python."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._route = b""

    def open_learner(self) -> str:
        """Bind."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(_KEPT_BACK)
        self._socket.bind(self._endpoint)
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def open_actor(self, address: str) -> None:
        """Connect."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set_hwm(_KEPT_BACK)
        self._socket.connect(address)

    def send(self, batch: Any) -> None:
        """Send dtype and shape of the arrays, then their memory as it lies."""
        head = msgspec.msgpack.encode([(array.dtype.str, array.shape) for array in batch])
        self._socket.send_multipart([head, *batch], copy=False)

    def receive(self) -> Any:
        """Return views on the frames that came."""
        route, head, *frames = self._socket.recv_multipart(copy=False)
        self._route = route.bytes
        specs = msgspec.msgpack.decode(head.buffer)
        return [
            np.frombuffer(frame.buffer, dtype).reshape(shape)
            for frame, (dtype, shape) in zip(frames, specs, strict=True)
        ]

    def acknowledge(self) -> None:
        """Send one byte."""
        self._socket.send_multipart([self._route, _ACKNOWLEDGED])

    def wait(self) -> None:
        """Receive it."""
        self._socket.recv()

    def close_learner(self) -> None:
        """Close."""
        self._context.destroy(linger=1000)

    close_actor = close_learner


class Ours(Way):
    """gpusched.channel, with what it promises beside speed: names, bounds, credits, restarts of either side."""

    def __init__(self, endpoint: str, *, share_memory: bool = True) -> None:
        self._endpoint = endpoint
        self._limits = Limits(share_memory=share_memory)
        self._batch: Batch | None = None

    def open_learner(self) -> str:
        """Make the Learner."""
        self._learner = Learner(self._endpoint, limits=self._limits)
        return self._learner.endpoint

    def open_actor(self, address: str) -> None:
        """Make the Actor."""
        self._actor = Actor(address, limits=self._limits)

    def send(self, batch: Any) -> None:
        """Send it; the channel has two under way at most."""
        self._actor.send(dict(zip(_NAMES, batch, strict=True)))

    def exchange(self, batch: Any) -> None:
        """Ask with the batch, and wait for the answer."""
        answer = self._actor.ask(dict(zip(_NAMES, batch, strict=True)))
        if answer is None or answer.wait() is None:
            raise RuntimeError("the learner did not answer")

    def receive(self) -> Any:
        """Return the arrays, as they lie in shared memory or in the frames that came."""
        self._batch = self._learner.get()
        if self._batch is None:
            raise RuntimeError("the learner was stopped")
        return [self._batch.arrays[name] for name in _NAMES]

    def acknowledge(self) -> None:
        """Answer with one byte."""
        if self._batch is not None:
            self._learner.answer(self._batch, {"acknowledged": np.ones(1, np.uint8)})

    def close_learner(self) -> None:
        """Close."""
        self._learner.close()

    def close_actor(self) -> None:
        """Close."""
        self._actor.close()


class UnixSocket(Way):
    """The limit of a socket: sendall, and recv_into memory that is there already."""

    def __init__(self, alike: Any) -> None:
        self.learner, self.actor = socket.socketpair()
        self._kept = [np.zeros_like(array) for array in alike]
        self._views = [memoryview(array.reshape(-1).view(np.uint8)) for array in self._kept]

    def send(self, batch: Any) -> None:
        """Write the arrays from where they lie."""
        for array in batch:
            self.actor.sendall(array.reshape(-1).view(np.uint8))

    def receive(self) -> Any:
        """Read them to where they stay."""
        for view in self._views:
            rest = view
            while rest:
                rest = rest[self.learner.recv_into(rest) :]
        return self._kept

    def acknowledge(self) -> None:
        """Write one byte."""
        self.learner.send(_ACKNOWLEDGED)

    def wait(self) -> None:
        """Read it."""
        self.actor.recv(1)
