"""One side of the channel as a process of its own, to be killed: `child.py MODE ENDPOINT ARGUMENTS`."""

import itertools
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from gpusched.channel import Actor, Learner, LearnerGone, Limits

QUICK = Limits(heartbeat_s=0.1, silence_s=1.0)


def play(endpoint: str, name: str) -> None:
    """Send batches with ids that no other process makes, until the learner says that it is over."""
    with Actor(endpoint, name=name) as actor:
        try:
            for number in itertools.count():
                actor.weights()
                actor.send(
                    {"states": np.full((50, 10), number % 251, np.uint8)}, meta={"id": f"{os.getpid()}-{number}"}
                )
        except LearnerGone:
            print("gone", flush=True)


def join(endpoint: str, *names: str) -> None:
    """Join under each name at once; each gets weights, sends one batch made of them, and ends."""
    with ExitStack() as stack:
        for actor in [stack.enter_context(Actor(endpoint, name=name)) for name in names]:
            actor.send({"sum": actor.weights().arrays["w"].sum(keepdims=True)})


def collect(endpoint: str, out: str, count: str, actors: str) -> None:
    """Write each batch's id to `out` as it is used, until `count` came from each actor; then say goodbye."""
    counts: Counter[str] = Counter()
    with Learner(endpoint, limits=QUICK) as learner, Path(out).open("a") as file:
        learner.publish({"w": np.ones(1000, np.float32)})
        while sum(number >= int(count) for number in counts.values()) < int(actors):
            batch = learner.get()
            assert batch is not None
            counts[batch.actor] += 1
            assert (batch.arrays["states"] == int(str(batch.meta["id"]).split("-")[1]) % 251).all()
            file.write(f"{batch.meta['id']} {batch.actor} {batch.version}\n")
            file.flush()
            learner.publish({"w": np.full(1000, counts.total(), np.float32)})


def big(endpoint: str, value: str) -> None:
    """Send one batch that lies in shared memory, and end at once."""
    with Actor(endpoint) as actor:
        actor.weights()
        actor.send({"x": np.full(300_000, int(value), np.uint8)})


def flood(endpoint: str) -> None:
    """Send batches that lie in shared memory until something ends this process."""
    with Actor(endpoint, name="flood") as actor:
        actor.weights()
        for number in itertools.count():
            actor.send({"x": np.full(300_000, number % 251, np.uint8)})


def until_signalled(endpoint: str) -> None:
    """Iterate until SIGTERM calls stop()."""
    with Learner(endpoint, limits=QUICK) as learner:
        signal.signal(signal.SIGTERM, lambda *_: learner.stop())
        print("ready", flush=True)
        print("batches", sum(1 for _ in learner), flush=True)


def fail(endpoint: str) -> None:
    """Leave the `with` block by an error after one batch, as a learner that crashes does."""
    with Learner(endpoint, limits=QUICK) as learner:
        learner.publish({"w": np.ones(3)})
        while (batch := learner.get()) is not None and not batch.meta:
            pass
        raise RuntimeError("a crash")


def imports(endpoint: str) -> None:
    """Be both sides, and print whether ZeroMQ was loaded."""
    with Learner(endpoint) as learner, Actor(endpoint) as actor:
        learner.publish({"w": np.ones(3)})
        actor.weights()
        actor.send({"x": np.ones(3)})
        learner.get()
    print("zmq" in sys.modules, flush=True)


if __name__ == "__main__":
    modes: dict[str, Callable[..., None]] = {
        "play": play,
        "join": join,
        "collect": collect,
        "big": big,
        "flood": flood,
        "until-signalled": until_signalled,
        "fail": fail,
        "imports": imports,
    }
    modes[sys.argv[1]](*sys.argv[2:])
