"""One side of a channel between two hosts, told to be small: `python -m tests.network.side learner|actor ...`.

Both end on SIGTERM and then print one line of JSON: the learner which numbered batches it used, and how often; an actor
how many it sent, and how many of them the learner has acknowledged.
"""

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np

from gpusched.channel import Actor, Learner, LearnerGone, Limits

_SETTLE_S: Final = 120.0
_PUBLISH_EVERY_S: Final = 0.25
_WEIGHTS: Final = 50_000


class Ending:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self.told = True


def learner(local: str, listen: str, keys: str, progress: str) -> None:
    """Use batches and publish weights until the end; `progress` always holds the number of those used, by actor."""
    ending, used, next_weights, version = Ending(), Counter[tuple[str, int]](), 0.0, 0
    with Learner(local, listen=listen, keys=Path(keys)) as channel:
        print("listening", flush=True)
        while not ending.told:
            now = time.monotonic()
            if now >= next_weights:
                version, next_weights = version + 1, now + _PUBLISH_EVERY_S
                channel.publish({"w": np.full(_WEIGHTS, version, np.float32)})
                count = Counter(actor for actor, _ in used)
                Path(f"{progress}.new").write_text(json.dumps({"time": time.time(), "used": count}))
                Path(f"{progress}.new").replace(progress)
            batch = channel.get(timeout=0.05)
            if batch is not None:
                used[batch.actor, int(batch.meta["number"])] += 1
    told = {actor: sorted(number for name, number in used if name == actor) for actor, _ in used}
    print(json.dumps({"used": told, "twice": [key for key, times in used.items() if times > 1]}), flush=True)


def actor(endpoint: str, keys: str, name: str, every_s: str) -> None:
    """Send numbered batches, one each `every_s` seconds."""
    ending, sent, pause = Ending(), 0, float(every_s)
    with Actor(endpoint, keys=Path(keys) if keys != "-" else None, name=name, limits=Limits()) as channel:
        try:
            while not ending.told:
                weights = channel.weights(timeout=0.1)
                if weights is None:
                    continue
                assert len(set(weights.arrays["w"].tolist())) == 1, "torn weights"
                arrays = {"x": np.full(20_000, sent % 251, np.uint8)}
                if channel.send(arrays, meta={"number": sent}, timeout=0.1):
                    sent += 1
                    time.sleep(pause)
            until = time.monotonic() + _SETTLE_S
            while (waiting := _unacknowledged(channel)) and time.monotonic() < until:
                channel.weights(newer_than=1 << 50, timeout=0.05)
        except LearnerGone:
            waiting = _unacknowledged(channel)
        print(json.dumps({"sent": sent, "acknowledged": sent - waiting}), flush=True)


def _unacknowledged(channel: Actor) -> int:
    with channel._loop.changed:
        return len(channel._loop.in_flight) + len(channel._loop.outbox)


if __name__ == "__main__":
    {"learner": learner, "actor": actor}[sys.argv[1]](*sys.argv[2:])
