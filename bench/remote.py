"""What 64 actors on another host cost their learner: `python -m bench.remote`. It needs root, for network namespaces.

Each actor is a process without a framework that sends 50 small batches a second over CURVE, and takes the time until
each is acknowledged: until the learner's application has taken it and the actor has heard so. One that is late sends
later ones later: where the CPUs are too few for so many senders, the rate says so.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.host import arguments, print_results
from gpusched.channel import Actor, Learner, LearnerGone
from gpusched.joining.keys import SERVER, make_server_key, new_key
from tests.network.hosts import Host, joined_by_veth

PORT: Final = 5555
PER_SECOND: Final = 50
BATCH_BYTES: Final = 20_000
_SETTLING_S: Final = 5.0

Result = tuple[str, float, str, str]


def learner(socket: str, listen: str, keys: str, actors: str, seconds: str) -> None:
    """Take batches for so long once all actors are there; print how many a second, and what they took of a CPU."""
    with Learner(f"ipc://{socket}", listen=listen, keys=Path(keys)) as channel:
        channel.publish({"w": np.zeros(1000, np.float32)})
        print("listening", flush=True)
        while len(channel.actors) < int(actors):
            channel.get(timeout=0.1)
        counting = time.monotonic() + _SETTLING_S
        while time.monotonic() < counting:
            channel.get(timeout=0.1)
        channel.publish({"w": np.ones(1000, np.float32)})  # by this they know that it counts
        end, taken, before = time.monotonic() + float(seconds), 0, time.process_time()
        while time.monotonic() < end:
            taken += channel.get(timeout=0.1) is not None
        connected = sum(actor.connected for actor in channel.actors)
        used = time.process_time() - before
    print(json.dumps({"rate": taken / float(seconds), "cpu": used / float(seconds), "connected": connected}))


def actor(endpoint: str, keys: str, rank: str) -> None:
    """Send until the learner ends; print the milliseconds from each send to its acknowledgement."""
    taken: list[float] = []
    batch = {"x": np.zeros(BATCH_BYTES, np.uint8)}
    with Actor(endpoint, keys=Path(keys), name=f"actor.{rank}@lab2") as channel:
        due = time.monotonic()
        try:
            while True:
                counts = channel.weights().version > 1
                time.sleep(max(0.0, due - time.monotonic()))
                sent = time.monotonic()
                channel.send(batch)
                _wait_until_acknowledged(channel)
                if counts:
                    taken.append(1000 * (time.monotonic() - sent))
                due = max(due + 1 / PER_SECOND, time.monotonic())
        except LearnerGone:
            print(json.dumps(taken))


def _wait_until_acknowledged(channel: Actor) -> None:
    loop = channel._loop  # noqa: SLF001 (the application has no need to know)
    with channel._call:  # noqa: SLF001
        channel._wait(lambda: not loop.in_flight and not loop.outbox, None)  # noqa: SLF001


def measured(here: Host, there: Host, home: Path, actors: int, seconds: int) -> list[Result]:
    """Return what was seen of so many actors on `there`, with the learner on `here`."""
    keys = home / "keys"
    make_server_key(keys, "bench-1")
    key, listen = new_key(keys, "join"), f"tcp://{here.address}:{PORT}"
    side = ("-m", "bench.remote", "--as")
    words = ("learner", str(home / "s"), listen, str(keys / SERVER), str(actors), str(seconds))
    learning = here.python(*side, *words, stdout=subprocess.PIPE)
    assert learning.stdout is not None  # noqa: S101 (for the type checker)
    learning.stdout.readline()
    playing = [
        there.python(*side, "actor", listen, str(key), str(rank), stdout=subprocess.PIPE) for rank in range(actors)
    ]
    told = json.loads(learning.communicate()[0].splitlines()[-1])
    taken = np.array([ms for one in playing for ms in json.loads(one.communicate()[0])])
    return [
        (f"{actors} actors, of which connected", told["connected"], "", f"= {actors}"),
        ("batches taken", told["rate"], "1/s", f"<= {actors * PER_SECOND}"),
        ("CPU of the learner's process", 100 * told["cpu"], "%", ""),
        ("acknowledged: median", float(np.median(taken)), "ms", ""),
        ("acknowledged: 99 of 100 within", float(np.percentile(taken, 99)), "ms", "< 100"),
        ("acknowledged: worst", float(taken.max()), "ms", ""),
    ]


def main() -> None:
    """Measure, or be one side of it."""
    if sys.argv[1:3] == ["--as", "learner"]:
        learner(*sys.argv[3:])
        return
    if sys.argv[1:3] == ["--as", "actor"]:
        actor(*sys.argv[3:])
        return
    typed = arguments(
        __doc__, ("--actors", 64, "processes on the other host"), ("--seconds", 20, "how long it is measured")
    )
    with tempfile.TemporaryDirectory(prefix="gs-") as home, joined_by_veth() as (here, there):
        print_results(measured(here, there, Path(home), typed.actors, typed.seconds), as_json=typed.json)


if __name__ == "__main__":
    main()
