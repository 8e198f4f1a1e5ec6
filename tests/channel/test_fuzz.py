"""A peer with a good key that talks nonsense; `python -m tests.channel.fuzz` does it at length."""

from tests.channel import fuzz


def test_mutated_messages_of_a_peer_with_a_key_cost_the_honest_nothing() -> None:
    report = fuzz.run(4000, seed=1)
    assert not report.crashed
    assert report.honest > 0
    assert (report.lost, report.twice) == (0, 0)
    assert report.growth_mb < 50
    assert report.dropped["header"] > 100
    assert report.accepted > 0, "some were good enough to get through"
