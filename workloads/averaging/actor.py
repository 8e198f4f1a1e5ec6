"""An actor: trains on its share of the data and sends what came of it. `gpusched launch averaging` starts it."""

import sys

from gpusched import runtime
from gpusched.channel import Actor
from gpusched.frameworks import limit_memory
from workloads.averaging.settings import Settings
from workloads.averaging.share import Share
from workloads.averaging.training import Training
from workloads.common.ending import ends_with_reason
from workloads.common.rounds import packed

__all__ = ["main"]


@ends_with_reason(ValueError)
def main() -> None:
    """Contribute to round after round until the learner says that the job is over."""
    me, settings = runtime.current_replica(), runtime.settings(Settings)
    if me.joined:
        sys.exit("the actors of one launch share the data: averaging takes none of other hosts")
    limit_memory()
    training = Training(settings)
    share = Share(len(training.data.inputs), me.rank, me.role_count, settings.batch, settings.seed)
    with Actor() as channel:
        contribute(channel, training, share)


def contribute(channel: Actor, training: Training, share: Share) -> None:
    """Contribute for ever, once for each version of the weights. Raises LearnerGone when the job is over.

    The round comes with the weights: versions are raised when a learner is restarted, rounds are not.
    """
    version = 0
    while True:
        weights = channel.weights(newer_than=version)
        version, number = weights.version, int(weights.arrays["round"])
        training.weights.set_flat(weights.arrays["weights"])
        arrays, meta = packed(training.contribution(share, number), number, share.rank, share.actors)
        channel.send(arrays, version=version, meta=meta)


if __name__ == "__main__":
    main()
