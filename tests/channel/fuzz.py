"""Mutated messages through a peer with a good key: nothing breaks, nothing grows, and honest peers lose no batch.

Beside them it knocks without a key, and takes routes that are others'.

    python -m tests.channel.fuzz --messages 100000 --seed 7

The learner is a process of its own, so that its memory is its own; the honest actors and the hostile one are in this.
"""

import argparse
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import zmq

from gpusched.channel import Actor, Learner, LearnerGone, Limits
from gpusched.channel.framing import DTYPES
from gpusched.channel.local import LocalClient
from gpusched.channel.messages import PROTOCOL
from gpusched.environment import Addresses, identity_environment
from gpusched.joining.invitation import Invitation, write_invitation
from gpusched.joining.keys import make_server_key, new_key, read_join_key, secure_client
from gpusched.model.plan import Replica
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
LIMITS = Limits(heartbeat_s=0.2, max_remote=1 << 20)
HONEST = ("local", "remote")
SETTLED = 1000  # messages, after which memory is compared: allocators, caches and names have come to stay
NAMES = 40
FIRST_ROUTE = 0x6B8B4567  # rand() of glibc without a seed


class Report(msgspec.Struct, kw_only=True):
    """What came of it. `lost`: batches that honest actors sent and the learner did not get; memory in MB."""

    messages: int
    crashed: bool
    growth_mb: float
    honest: int
    lost: int
    twice: int
    accepted: int
    dropped: dict[str, int]
    seconds: float


class Told(msgspec.Struct):
    """What the learner says at its end: ids by honest actor, batches of the hostile one, messages dropped."""

    ids: dict[str, list[int]]
    accepted: int
    dropped: dict[str, int]


def serve() -> None:
    """Be the learner until a line comes on stdin."""
    told = Told({name: [] for name in HONEST}, 0, {})
    with Learner(limits=LIMITS) as learner:
        print(learner.listening, flush=True)

        def wait() -> None:
            sys.stdin.readline()
            while learner._loop._inbox.qsize():  # what honest actors have sent is to be counted
                time.sleep(0.01)
            learner.stop()

        threading.Thread(target=wait, daemon=True).start()
        for count, batch in enumerate(learner):
            ids = told.ids.get(batch.actor.partition("@")[0])
            if ids is None:
                told.accepted += 1
            else:
                ids.append(int(batch.arrays["n"][0]))
            if count % 100 == 0:
                learner.publish({"w": np.full(100_000, count, np.float32)})
        told.dropped = learner.dropped
        print(msgspec.json.encode(told).decode(), flush=True)


class Mutations:
    """An endless row of messages that a peer might send, and that were changed."""

    def __init__(self, seed: int, host: str = "@fuzz") -> None:
        self._random = random.Random(seed)  # noqa: S311 (it shall come again)
        self._seq = 0
        self._host = host

    def next(self) -> list[bytes]:
        """Return the parts of one message."""
        some = self._random
        message, frames = self._valid()
        for _ in range(some.choice((0, 0, 0, 1, 2))):
            message = self._change(message)
        data = bytearray(self._encoded(message))
        for _ in range(some.choice((0, 0, 0, 0, 0, 1, 8))):
            data = self._damage(data)
        return [bytes(data), *self._shuffled(frames)]

    def _valid(self) -> tuple[list[object], list[bytes]]:
        some = self._random
        name = f"fuzz.{some.randrange(NAMES)}{self._host}"
        kind = some.choice(
            ("hello", "batch", "batch", "batch", "ping", "get-weights", "got-weights", "join", "leaving")
        )
        self._seq += 1
        if kind == "batch":
            specs, frames = self._arrays()
            return ["batch", self._seq, 0, specs, {"id": self._seq}, some.random() < 0.1, None], frames
        words: dict[str, list[object]] = {
            "hello": [PROTOCOL, name, self._seq, f"n{self._seq}", 1, "", 0, "", some.choice((0, 1, 1, 1, 1))],
            "ping": [self._seq, True],
            "get-weights": [some.randrange(3), some.randrange(2)],
            "got-weights": [1, some.random() < 0.5],
            "join": [PROTOCOL, f"host{some.randrange(5)}", f"n{some.randrange(5)}"],
            "leaving": [],
        }
        return [kind, *words[kind]], []

    def _arrays(self) -> tuple[list[object], list[bytes]]:
        specs: list[object] = []
        frames = []
        for number in range(self._random.choice((0, 1, 1, 2, 5))):
            dtype = self._random.choice(list(DTYPES))
            shape = [self._random.choice((0, 1, 3, 100)) for _ in range(self._random.randrange(4))]
            specs.append([f"a{number}", dtype, shape])
            frames.append(bytes(DTYPES[dtype].itemsize * int(np.prod(shape))))
        return specs, frames

    def _change(self, message: object, depth: int = 0) -> list[object]:
        """Put something else in one place of a message, or of what is in it."""
        changed = list(message) if isinstance(message, list) else [message]
        some = self._random
        if not changed:
            return [self._odd()]
        at = some.randrange(len(changed))
        if isinstance(changed[at], list) and changed[at] and depth < 4 and some.random() < 0.7:
            changed[at] = self._change(changed[at], depth + 1)
        elif some.random() < 0.8:
            changed[at] = self._odd()
        elif some.random() < 0.5:
            del changed[at]
        else:
            changed.insert(at, self._odd())
        return changed

    def _odd(self) -> object:
        some = self._random
        odd: list[object] = [
            None,
            True,
            -1,
            0,
            1,
            2**31,
            2**62,
            2**63 - 1,
            2**64 - 1,
            1e308,
            float("nan"),
            "",
            "x" * 70,
        ]
        odd += ["actor.0", "local", "remote@honest", "a@b@c", "|O", "<f8", "<M8", b"", b"\xff" * 20, [], {}]
        odd += [[[]] * 300, {"k": 1}, {1: 2}, [["a", "<f8", [2**62, 2**62]]], [["a", "|u1", [1] * 40]], [1, 1, 1, 4096]]
        odd += [[some.randrange(1 << 20), some.randrange(64), some.randrange(1 << 30), 1 << 16], "hello", "weights"]
        return some.choice(odd)

    def _encoded(self, message: list[object]) -> bytes:
        deep = self._random.random()
        if deep < 0.005:
            return b"\x91" * self._random.choice((100, 5000, 70_000))
        return msgspec.msgpack.encode(message)

    def _damage(self, data: bytearray) -> bytearray:
        some = self._random
        what = some.randrange(5)
        at = some.randrange(len(data) + 1)
        if what == 0:
            return data[:at]
        if what == 1:
            return data[:at] + some.randbytes(some.choice((1, 4, 100))) + data[at:]
        if what == 2:
            return data + data
        for _ in range(what):
            if data:
                data[some.randrange(len(data))] = some.randrange(256)
        return data

    def _shuffled(self, frames: list[bytes]) -> list[bytes]:
        some = self._random
        chance = some.random()
        if chance < 0.1:
            return frames[:-1]
        if chance < 0.2:
            return [*frames, some.randbytes(some.choice((0, 1, 1000)))]
        if chance < 0.3:
            return [frame[: some.randrange(len(frame) + 1)] for frame in frames]
        if chance < 0.32:
            return [b"x"] * some.choice((200, 257, 1000))
        if chance < 0.4:
            some.shuffle(frames)
        return frames


class Hostile:
    """The peer that sends them. It reads what it is told, sometimes."""

    def __init__(self, endpoint: str, key: Path, seed: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._mutations = Mutations(seed)
        self._squatters: list[zmq.Socket[bytes]] = []
        self._endpoint, self._key = endpoint, read_join_key(key)
        self._socket = self._connected()

    def _connected(self) -> "zmq.Socket[bytes]":
        peer = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.LINGER, 0), (zmq.IMMEDIATE, 1), (zmq.RECONNECT_IVL, 10), (zmq.SNDTIMEO, 5000)):
            peer.setsockopt(option, value)
        secure_client(peer, self._key)
        peer.connect(self._endpoint)
        return peer

    def squat(self, endpoint: str, key: Path) -> None:
        """Take the routes that libzmq would give first: it ends a process in which it gives one twice."""
        for number in range(40):
            self._squatters.append(peer := self._context.socket(zmq.DEALER))
            peer.setsockopt(zmq.ROUTING_ID, b"\0" + (FIRST_ROUTE + number).to_bytes(4, "big"))
            secure_client(peer, read_join_key(key))
            peer.connect(endpoint)
            peer.send(msgspec.msgpack.encode(["hello", PROTOCOL, f"squat.{number}@fuzz", 0, "n", 1, "", 0, ""]))
            peer.poll(10_000)

    def knock(self, endpoint: str, count: int, seed: int) -> None:
        """Connect so many times without a key, with a greeting or a handshake that is not quite one."""
        some = random.Random(seed)  # noqa: S311 (it shall come again)
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
        hello = b"\x04\xc8\x05HELLO\x01\x00" + some.randbytes(192)
        for _ in range(count):
            said = bytearray(greeting + hello * some.randrange(3) + some.randbytes(some.choice((0, 9, 300))))
            for _ in range(some.randrange(4)):
                said[some.randrange(len(said))] = some.randrange(256)
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=PATIENCE_S) as raw:
                raw.sendall(said[: some.randrange(len(said) + 1)] if some.random() < 0.2 else said)
                if some.random() < 0.2:
                    raw.settimeout(0.05)
                    raw.recv(100)

    def send(self, count: int) -> None:
        """Send so many; raises zmq.Again if nobody takes them any more."""
        for number in range(count):
            message = self._mutations.next()
            self._send(message)
            while number % 50 == 0 and self._socket.poll(0):
                self._socket.recv_multipart()

    def _send(self, message: Sequence[bytes]) -> None:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._socket.send_multipart(message)
            except zmq.Again:  # now and then this libzmq does not connect again; a new socket does
                if time.monotonic() > until:
                    raise
                self._socket.close()
                self._socket = self._connected()
            else:
                return

    def close(self) -> None:
        """End the connection, with what is still under way."""
        self._context.destroy(linger=0)


class Neighbour:
    """The same from this host: messages to the learner's socket, and streams of bytes that are none."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._random = random.Random(seed)  # noqa: S311 (it shall come again)
        self._mutations = Mutations(seed, host="")
        self._socket = LocalClient(path, LIMITS)

    def send(self, count: int) -> None:
        """Send so many, and read what is answered, sometimes."""
        for number in range(count):
            message = self._next()
            until = time.monotonic() + PATIENCE_S
            while not self._socket.send(0, message):
                if time.monotonic() > until:
                    raise TimeoutError("nobody takes messages of this host any more")
                while self._socket.receive() is not None:
                    pass
                time.sleep(0.001)
            while number % 50 == 0 and self._socket.receive() is not None:
                pass

    def knock(self, count: int) -> None:
        """Connect so many times, with a message whose bytes were changed, or that ends too early."""
        some = self._random
        for _ in range(count):
            parts = self._next()
            sizes = [len(part) for part in parts]
            said = bytearray(struct.pack(f"<4sI{len(sizes)}Q", b"gpu1", len(sizes), *sizes) + b"".join(parts))
            for _ in range(some.randrange(4)):
                said[some.randrange(min(len(said), 40))] = some.randrange(256)
            with suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(PATIENCE_S)
                raw.connect(str(self._path))
                raw.sendall(said[: some.randrange(len(said) + 1)] if some.random() < 0.3 else said)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _next(self) -> list[bytes]:
        """Return a message that names none of the honest: on one host, whoever says so is an actor's next process."""
        message = self._mutations.next()
        while any(name.encode() in part for part in message for name in HONEST):
            message = self._mutations.next()
        return message


class Honest:
    """An actor that sends numbers, until told to stop and all of them were taken."""

    def __init__(self, make: Callable[[], Actor]) -> None:
        self.sent = 0
        self._make = make
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Return how many it sent."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        return self.sent

    def _play(self) -> None:
        with self._make() as actor:
            try:
                actor.weights(timeout=PATIENCE_S)
                while not self._stop.is_set():
                    self.sent += actor.send({"n": np.full(1000, self.sent)}, timeout=1)
                    time.sleep(0.002)
            except LearnerGone:
                return


def run(messages: int, seed: int) -> Report:
    """Send so many mutated messages; the same seed sends the same."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gs-fuzz-", dir="/tmp") as directory:
        home = Path(directory)
        make_server_key(home, "fuzz")
        keys = {name: new_key(home, name) for name in ("honest", "fuzz")}
        write_invitation(home, Invitation(job="fuzz", workload="snake", options="{}", files={}, versions={}))
        argv = [sys.executable, "-m", "tests.channel.fuzz", "--serve"]
        learner = subprocess.Popen(
            argv, cwd=ROOT, env=_environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            return _besiege(learner, home, keys, (messages, seed), began)
        finally:
            learner.kill()
            learner.wait()


def _besiege(
    learner: "subprocess.Popen[str]", home: Path, keys: dict[str, Path], how: tuple[int, int], began: float
) -> Report:
    assert learner.stdin is not None
    assert learner.stdout is not None
    (messages, seed), where = how, learner.stdout.readline().strip()
    hostile = Hostile(where, keys["fuzz"], seed)
    hostile.squat(where, keys["fuzz"])
    honest = [
        Honest(lambda: Actor(f"ipc://{home}/job.sock", name="local")),
        Honest(lambda: Actor(where, keys=keys["honest"], name="remote@honest")),
    ]
    neighbour = Neighbour(home / "job.sock", seed)
    hostile.send(min(SETTLED, messages // 2))
    neighbour.send(min(SETTLED, messages // 2))
    before = _memory_mb(learner.pid)
    hostile.knock(where, messages // 50, seed)
    neighbour.knock(messages // 50)
    hostile.send(messages - min(SETTLED, messages // 2))
    neighbour.send(messages - min(SETTLED, messages // 2))
    hostile.close()
    neighbour.close()
    sent = [each.end() for each in honest]
    after = _memory_mb(learner.pid)
    crashed = learner.poll() is not None
    if not crashed:
        learner.stdin.write("\n")
        learner.stdin.flush()
    told = msgspec.json.decode(learner.stdout.read() or '{"ids": {}, "accepted": 0, "dropped": {}}', type=Told)
    crashed = crashed or learner.wait(PATIENCE_S) != 0
    counts = [Counter(told.ids.get(name, [])) for name in HONEST]
    return Report(
        messages=messages,
        crashed=crashed,
        growth_mb=round(after - before, 1),
        honest=sum(sent),
        lost=sum(number not in count for count, most in zip(counts, sent, strict=True) for number in range(most)),
        twice=sum(times - 1 for count in counts for times in count.values()),
        accepted=told.accepted,
        dropped=told.dropped,
        seconds=round(time.monotonic() - began, 1),
    )


def _environment(home: Path) -> dict[str, str]:
    """Return what makes the learner the one of a job that listens."""
    replica = Replica(name="learner.0", role="learner", rank=0)
    return os.environ | identity_environment(
        replica,
        Addresses(f"ipc://{home}/job.sock", keys=str(home / "server.key"), listen="tcp://127.0.0.1:0"),
        job="fuzz",
        role_count=1,
        run_dir=str(home),
        settings=b"{}",
    )


def _memory_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Run it, and print what came of it; exit 1 if anything was lost, crashed or grew by 50 MB."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    report = run(given.messages, given.seed)
    print(msgspec.json.format(msgspec.json.encode(report)).decode())
    sys.exit(report.crashed or report.lost > 0 or report.twice > 0 or report.growth_mb > 50)


if __name__ == "__main__":
    main()
