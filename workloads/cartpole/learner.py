"""The learner: learns from what actors play, or averages what each has learnt. `gpusched launch cartpole` starts it.

What it leaves in the run's directory is in run.py.
"""

import sys
from typing import Final

import numpy as np

from gpusched import runtime
from gpusched.channel import Batch, Learner, Limits
from gpusched.frameworks import limit_memory
from workloads.cartpole.memory import Memory, transitions_from
from workloads.cartpole.run import CartPole
from workloads.cartpole.settings import Settings
from workloads.common.chance import chance_of
from workloads.common.ending import ends_with_reason
from workloads.common.rounds import hold_rounds

__all__ = ["main"]

_LOOK_UP_EVERY_S: Final = 0.5
_JUDGE_EVERY: Final = 16
"""How many updates of the scheme `central` are judged as one: judging takes as long as some of them."""


@ends_with_reason(OSError)
def main() -> None:
    """Learn until it is solved, a limit is reached or SIGTERM comes; leave weights, curve and evaluation."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    limit_memory()
    run = CartPole(settings, me.run_dir)
    run.end_at_sigterm()
    with ends_with_reason(ValueError), Learner(limits=Limits(in_flight=1)) as channel:
        if settings.scheme == "central":
            learn(run, channel, settings, chance_of("learner", settings.seed, me.attempt))
        else:
            hold_rounds(run, channel)
    run.finish()


def learn(run: CartPole, channel: Learner, settings: Settings, random: np.random.Generator) -> None:
    """Learn all the time, from the memory of what came; wait for actors only before it holds enough to begin with."""
    memory, weights = Memory(settings.memory), run.weights
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


def remember(run: CartPole, memory: Memory, batch: Batch) -> None:
    """Take in what an actor played; say so, and leave it out, if a batch is none of that."""
    try:
        transitions = transitions_from(batch.arrays)
    except ValueError as error:
        print(f"a batch of {batch.actor} is left out: {error}", file=sys.stderr, flush=True)
        return
    memory.add(transitions)
    run.counts.steps += len(transitions.actions)
    run.record.count(batch.actor, len(transitions.actions), _known(batch.meta.get("score")))


def _known(score: float | str | None) -> list[float]:
    return [] if score is None else [float(score)]


if __name__ == "__main__":
    main()
