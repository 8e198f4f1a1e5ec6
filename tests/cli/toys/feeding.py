"""A learner that notes who feeds it and ends when RUN_DIR/end is there; actors that send small batches.

It is copied into a workload's folder, and run from there.
"""

import json
import os
import time

import numpy as np

from gpusched import runtime
from gpusched.channel import Actor, ChannelError, Learner, LearnerGone

me = runtime.current_replica()


def learn() -> None:
    fed: dict[str, int] = {}
    draft = me.run_dir / "fed.draft"
    with Learner() as learner:
        learner.publish({"weights": np.arange(4.0)})
        while not (me.run_dir / "end").exists():
            batch = learner.get(0.1)
            if batch is not None:
                fed[batch.actor] = int(batch.meta["rank"])
                draft.write_text(json.dumps(fed))
                draft.replace(me.run_dir / "fed.json")


def act() -> None:
    if os.environ.get("TOY_STARTS_SLOWLY") == me.name:
        time.sleep(600)
    try:
        with Actor() as actor:
            while True:
                actor.send({"x": actor.weights().arrays["weights"]}, meta={"rank": me.rank})
                time.sleep(0.05)
    except LearnerGone:
        pass
    except ChannelError as error:
        raise SystemExit(str(error)) from None


if me.role == "learner":
    learn()
else:
    act()
