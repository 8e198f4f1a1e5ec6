"""The learner: learns from what actors play, or averages what each has learnt. `gpusched launch cartpole` starts it.

What it leaves in the run's directory is in run.py.
"""

import signal
import sys
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import Batch, Learner, Limits
from gpusched.frameworks import limit_memory
from workloads.cartpole.memory import Memory, transitions_from
from workloads.cartpole.run import Run
from workloads.cartpole.settings import Settings
from workloads.common.chance import chance_of
from workloads.common.ending import ends_with_reason
from workloads.common.rounds import Round

__all__ = ["main"]

_LOOK_UP_EVERY_S: Final = 0.5
_JUDGE_EVERY: Final = 16
"""How many updates of the scheme `central` are judged as one: judging takes as long as some of them."""
_PATIENCE_S: Final = 5.0
"""How long a round may take before it is told whom it waits for."""


@ends_with_reason(OSError)
def main() -> None:
    """Learn until it is solved, a limit is reached or SIGTERM comes; leave weights, curve and evaluation."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    run = Run(settings, me.run_dir)
    signal.signal(signal.SIGTERM, lambda *_: run.ask_to_stop())
    with ends_with_reason(ValueError), Learner(limits=Limits(in_flight=1)) as channel:
        if settings.scheme == "central":
            learn(run, channel, settings, chance_of("learner", settings.seed, me.attempt))
        else:
            average(run, channel)
    run.finish()


def learn(run: Run, channel: Learner, settings: Settings, random: np.random.Generator) -> None:
    """Learn all the time, from the memory of what came; wait for actors only before it holds enough to begin with."""
    memory, weights = Memory(settings.memory), run.training.weights
    channel.publish(weights.get())
    while not run.done:
        batch = channel.get(0 if memory.enough else _LOOK_UP_EVERY_S)
        if batch is not None:
            remember(run, memory, batch)
        if memory.enough:
            loss = run.training.learn(memory.sample((settings.updates, settings.batch), random))
            run.counts.updates += 1
            channel.publish(weights.get())
            if run.counts.updates % _JUDGE_EVERY == 0:
                run.judge(loss)
        run.keep()


def remember(run: Run, memory: Memory, batch: Batch) -> None:
    """Take in what an actor played; say so, and leave it out, if a batch is none of that."""
    try:
        transitions = transitions_from(batch.arrays)
    except ValueError as error:
        print(f"a batch of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
        return
    memory.add(transitions)
    run.counts.steps += len(transitions.actions)
    run.record.count(batch.actor, len(transitions.actions), _known(batch.meta.get("score")))


def average(run: Run, channel: Learner) -> None:
    """Hold one round after the other. Raises ValueError for a batch that is no contribution.

    A round is saved before the next begins: whoever is killed, a learner never asks actors for a round that they have
    behind them, but for the last one, whose contribution they keep (own.py).
    """
    present, began = next_round(run), time.monotonic()
    if not run.done:
        channel.publish(published(run, present))
    while not run.done:
        batch = channel.get(_LOOK_UP_EVERY_S)
        if batch is not None:
            present.add(batch)
        if present.whole:
            take(run, present)
            present, began = next_round(run), time.monotonic()
            if not run.done:
                channel.publish(published(run, present))
        run.keep(present.waits_for if time.monotonic() - began >= _PATIENCE_S else None)


def next_round(run: Run) -> Round:
    """Return the round after those that the run has behind it."""
    return Round(run.counts.updates + 1, run.training.weights.size)


def published(run: Run, present: Round) -> dict[str, NDArray[Any]]:
    """Return what actors need for a round: its number, and the weights [size] that it begins from."""
    return {"round": np.array(present.number), "weights": run.training.weights.get_flat()}


def take(run: Run, done: Round) -> None:
    """Go on from the average of a round; judge it, and save."""
    run.training.weights.set_flat(done.average())
    run.counts.updates = done.number
    run.counts.steps += done.samples
    for rank, part in enumerate(done.parts):
        run.record.count(f"actor.{rank}", part.samples, _known(part.score))
    run.judge(done.loss)
    run.save()


def _known(score: float | str | None) -> list[float]:
    return [] if score is None else [float(score)]


if __name__ == "__main__":
    main()
