"""An actor: trains on its share of the data and sends what came of it. `gpusched launch averaging` starts it."""

import sys

from gpusched import runtime
from gpusched.channel import Actor
from gpusched.frameworks import limit_memory
from workloads.averaging.settings import Settings
from workloads.averaging.share import Share
from workloads.averaging.training import Training
from workloads.common.ending import ends_with_reason
from workloads.common.rounds import Contribution, contribute
from workloads.common.weights import Vector

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

    def contribution(number: int, weights: Vector) -> Contribution:
        training.weights.set_flat(weights)
        return training.contribution(share, number)

    with Actor() as channel:
        contribute(channel, me.rank, me.role_count, contribution)


if __name__ == "__main__":
    main()
