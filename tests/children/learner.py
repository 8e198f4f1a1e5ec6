"""A learner that takes what comes, and publishes nothing; it says where it listens."""

from gpusched.channel import Learner, Limits

with Learner(limits=Limits(heartbeat_s=0.1)) as learner:
    print(learner.listening, flush=True)
    for _ in learner:
        continue
