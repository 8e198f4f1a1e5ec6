"""How a process of a workload ends: with a sentence by what is to be expected, and else with a traceback."""

import pytest

from gpusched.channel import ChannelError, LearnerGone
from workloads.common.checkpoint import UnusableWeights
from workloads.common.ending import ends_with_reason


@ends_with_reason(OSError)
def main(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ChannelError("no learner answers"), "no learner answers"),
        (UnusableWeights("a.npz is damaged"), "a.npz is damaged"),
        (OSError(28, "No space left on device"), "not read or written: [Errno 28] No space left on device"),
    ],
)
def test_what_is_to_be_expected_is_a_sentence(error: Exception, sentence: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(error)
    assert ended.value.code == sentence


def test_a_learner_that_is_gone_ends_an_actor_without_an_error_and_a_mistake_is_raised() -> None:
    main(LearnerGone("the job is over"))
    with pytest.raises(ValueError, match="mistake"):
        main(ValueError("mistake"))
