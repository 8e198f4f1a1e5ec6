"""An actor: plays, and sends what it played or what it has learnt from it. `gpusched launch cartpole` starts it.

With the scheme `central` it plays in NumPy, and uses no framework.
"""

import sys

from gpusched import runtime
from gpusched.channel import Actor
from workloads.cartpole.explorer import Explorer, curiosities
from workloads.cartpole.games import Games
from workloads.cartpole.settings import Settings
from workloads.common.chance import chance_of
from workloads.common.ending import ends_with_reason
from workloads.common.rounds import contribute

__all__ = ["main"]


@ends_with_reason(ValueError)
def main() -> None:
    """Play until the learner says that the job is over."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    if me.joined and settings.scheme == "average":
        sys.exit("the rounds of one launch wait for its own actors: --scheme average takes none of other hosts")
    with Actor() as channel:
        if settings.scheme == "central":
            explore(channel, settings, me)
        else:
            learn_by_itself(channel, settings, me)


def explore(channel: Actor, settings: Settings, me: runtime.ReplicaIdentity) -> None:
    """Play with the learner's newest weights, and send what was played, for ever. Raises LearnerGone."""
    random = chance_of("actor", settings.seed, me.rank, me.attempt)
    epsilons = curiosities(settings.epsilon, settings.games, me.rank, me.role_count)
    explorer = Explorer(Games(settings.games, random), epsilons, random)
    while True:
        weights = channel.weights()
        played = explorer.play(weights.arrays, settings.play)
        meta = {} if explorer.score is None else {"score": explorer.score}
        channel.send(played.arrays(), version=weights.version, meta=meta)


def learn_by_itself(channel: Actor, settings: Settings, me: runtime.ReplicaIdentity) -> None:
    """Contribute what it learns to round after round, for ever. Raises LearnerGone when the job is over."""
    from gpusched.frameworks import limit_memory
    from workloads.cartpole.averaged import AveragedActor

    limit_memory()
    own = AveragedActor(settings, me.rank, me.role_count, me.run_dir / f"{me.name}.npz")
    contribute(channel, me.rank, me.role_count, own.contribution)


if __name__ == "__main__":
    main()
