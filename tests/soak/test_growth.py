"""What the soak calls growth: a leak is seen through noise and restarts; what kept jobs explain is none."""

import random
from dataclasses import replace

import pytest

from tests.soak.growth import QUANTITIES, judge
from tests.soak.measure import Sample

BASE = Sample(0, 1, 40000, 20000, 15, 4, 4, 6000, 8, 1, 5, 100, 1000, 6, 6, 4000)


def hours(count: float, **leaks: float) -> list[Sample]:
    """Samples of so long; `leaks`: by how much a field rises in an hour. The daemon is another one each 20 minutes."""
    dice = random.Random(3)  # noqa: S311
    samples = []
    for number in range(int(count * 360)):
        time = number * 10.0
        rises = {name: int(getattr(BASE, name) + rise * (time % 1200) / 3600) for name, rise in leaks.items()}
        one = replace(BASE, time=time, daemon=1 + int(time // 1200), live_jobs=5 + dice.randrange(4), **rises)
        samples.append(
            replace(
                one,
                daemon_private=one.daemon_private + dice.randrange(300),
                daemon_fds=one.daemon_fds + dice.randrange(6),
            )
        )
    return samples


def grown(samples: list[Sample]) -> set[str]:
    return {quantity.name for quantity in QUANTITIES if judge(quantity, samples).grows}


def test_noise_and_a_flat_line_are_no_growth() -> None:
    assert grown(hours(2)) == set()


@pytest.mark.parametrize(
    ("field", "an_hour", "name"),
    [
        ("daemon_fds", 60, "daemon: descriptors"),
        ("daemon_threads", 12, "daemon: threads"),
        ("steady_private", 3000, "supervisors and guards: private memory (mean)"),
        ("steady_fds", 20, "supervisors and guards: descriptors (most)"),
        ("lease_files", 100, "files in the lease directory"),
        ("runtime_files", 100, "files in the runtime directory"),
    ],
)
def test_a_leak_is_seen_through_restarts_of_the_daemon(field: str, an_hour: float, name: str) -> None:
    assert grown(hours(2, **{field: an_hour})) == {name}


def test_what_grows_with_the_jobs_that_are_kept_is_judged_for_each_of_them() -> None:
    within = hours(2, kept_jobs=1000, state_files=12000, db_kib=2000, daemon_private=4000)
    assert grown(within) == set()
    beyond = hours(2, kept_jobs=1000, state_files=60000, db_kib=30000, daemon_private=60000)
    assert grown(beyond) == {"daemon: private memory", "files in the state directory", "database"}


def test_a_few_minutes_are_too_short_for_a_verdict() -> None:
    samples = hours(0.1, daemon_threads=1000)
    assert not any(judge(quantity, samples).judged for quantity in QUANTITIES)
    assert grown(samples) == set()
