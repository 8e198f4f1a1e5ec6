"""How long a job will run: a sample of how long earlier jobs ran, of the same kind as far as there are any.

Users' own estimates are worse than the last runs of the same user (Tsafrir, Etsion, Feitelson, IEEE TPDS 2007). Here
more is known: the same command, or the same workload with the same options.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from gpusched.model.job import Submission

__all__ = ["LEAST_LEFT_S", "PRIOR", "RunTimes", "RunTimesSeen", "kinds_of", "left_after", "middle_of", "outlived"]

RunTimes = tuple[float, ...]
"""Seconds, rising, each as likely as the others; never empty."""

PRIOR: Final[RunTimes] = (60.0, 600.0, 3600.0, 14_400.0, 43_200.0)
"""What is expected where little has ended yet: from a minute to half a day."""

_ARRAY: Final = "array "
_SAME: Final = "= "
_NUMBER: Final = re.compile(r"\.\d+$")
"""What a name has behind it while another job of that name lives."""

_KEPT: Final = 50
_KEPT_OF_ALL: Final = 200
_KEPT_OF_ONE: Final = 10
"""How many of one array or command are among those of all: a sweep of short members does not make all seem short."""

_MOST_KINDS: Final = 5000
"""Of as many an expectation is kept.

Of members of arrays the commands are counted apart: those of a long sweep are many, and crowd out no others."""
_ENOUGH: Final = 3
_ENOUGH_OF_ALL: Final = 20
_OUTLIVED: Final = (1.1, 1.5, 2.0, 3.0)
"""By how much what has outlived its prediction may outlive it at last."""

LEAST_LEFT_S: Final = 60.0


class RunTimesSeen:
    """The latest run times of each kind of job, and of all together."""

    def __init__(self) -> None:
        self._by_kind: dict[str, deque[float]] = {}
        self._of_members: dict[str, deque[float]] = {}
        self._all: deque[tuple[str, float]] = deque(maxlen=_KEPT_OF_ALL)
        self._expected: dict[tuple[str, ...], RunTimes] = {}
        """What is expected, by the kinds of which there are runs: of all commands that never ran it is one."""
        self._expected_by: dict[str | None, set[tuple[str, ...]]] = {}
        """Which of these each kind is in; None: which of them are by all jobs, too."""

    def add(self, kinds: Sequence[str], seconds: float) -> None:
        """Note that a job of these kinds (see `kinds_of`) ran for so long."""
        self._forget_expected(*kinds, None)
        member = any(kind.startswith(_ARRAY) for kind in kinds)
        for kind in kinds:
            held = self._of_members if member and kind.startswith(_SAME) else self._by_kind
            same = held.pop(kind, None) or deque(maxlen=_KEPT)
            same.append(seconds)
            held[kind] = same  # the latest kinds stand last
            if len(held) > _MOST_KINDS:
                oldest = next(iter(held))
                del held[oldest]
                self._forget_expected(oldest)
        one = next((kind for kind in kinds if kind.startswith(_ARRAY)), kinds[0] if kinds else "")
        earlier = [entry for entry in self._all if entry[0] == one]
        if len(earlier) >= _KEPT_OF_ONE:
            self._all.remove(earlier[0])
        self._all.append((one, seconds))

    def expected(self, kinds: Sequence[str], limit_s: float | None = None) -> RunTimes:
        """Return how long a job of these kinds may run, the finest first; none exceeds its time limit.

        Three runs of one kind are enough; fewer count three times each, beside those of the next kind, in the end of
        all jobs, and of PRIOR while fewer than 20 have ended.
        """
        key = self._known(kinds)
        found = self._expected.get(key)
        if found is None:
            found = self._expected[key] = self._found(key)
            for kind in key:
                self._expected_by.setdefault(kind, set()).add(key)
        return _capped(found, limit_s)

    def _forget_expected(self, *kinds: str | None) -> None:
        for kind in kinds:
            for key in self._expected_by.pop(kind, ()):
                self._expected.pop(key, None)

    def _known(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Return those of the kinds of which there are runs, to the first of which there are enough."""
        known, by_kind, of_members = [], self._by_kind, self._of_members
        for kind in kinds:
            count = len(by_kind.get(kind, ())) + len(of_members.get(kind, ()))
            if count:
                known.append(kind)
            if count >= _ENOUGH:
                break
        return tuple(known)

    def _found(self, kinds: tuple[str, ...]) -> RunTimes:
        found: list[float] = []
        for kind in kinds:
            same = *self._of_members.get(kind, ()), *self._by_kind.get(kind, ())
            found += same if len(same) >= _ENOUGH else 3 * [*same]
            if len(same) >= _ENOUGH:
                return tuple(sorted(found))
        self._expected_by.setdefault(None, set()).add(kinds)
        found += [*(each for _, each in self._all), *(PRIOR if len(self._all) < _ENOUGH_OF_ALL else ())]
        return tuple(sorted(found))


def _capped(run_times: RunTimes, most_s: float | None) -> RunTimes:
    """Return the run times, none longer than `most_s`; None: no bound."""
    if most_s is None or run_times[-1] <= most_s:
        return run_times
    shorter = bisect_right(run_times, most_s)
    return run_times[:shorter] + (most_s,) * (len(run_times) - shorter)


def kinds_of(submission: Submission, array: str | None = None) -> tuple[str, ...]:
    """Return what a job has in common with earlier ones: all that it runs, its array, its program, its given name.

    A program is two words as in `python train.py`, three where the second is an option: `python -m train`.
    """
    argv = submission.typed
    name = submission.workload.name
    named = (f"name {_NUMBER.sub('', submission.name)}",) if submission.name else ()
    members = (f"{_ARRAY}{array}",) if array else ()
    if argv:
        program = argv[: 3 if len(argv) > 1 and argv[1].startswith("-") else 2]
        return f"{_SAME}{submission.cwd} {argv!r}", *members, f"program {program!r}", *named
    counts = [(role.name, role.count) for role in submission.request.roles] if submission.request else []
    same = f"{_SAME}{name} {submission.options!r}"
    return f"{same} {counts!r}", same, *members, f"workload {name}", *named


def left_after(
    run_times: RunTimes, age_s: float, draw: Callable[[RunTimes], RunTimes] = lambda run_times: run_times
) -> RunTimes:
    """Return how many seconds a job may run on that has run for `age_s`: by those that ran longer, as drawn of them.

    One that has outlived them all is expected to run for another tenth to twice its age.
    """
    longer = run_times[bisect_right(run_times, age_s) :]
    return tuple([each - age_s for each in draw(longer)]) if longer else draw(outlived(age_s))


def middle_of(run_times: RunTimes) -> float:
    """Return their median, which is quicker found than by `statistics.median`: they rise."""
    return (run_times[(len(run_times) - 1) // 2] + run_times[len(run_times) // 2]) / 2


def outlived(seconds: float) -> RunTimes:
    """Return how many seconds what has outlived its prediction by so much may run on: another tenth to twice that."""
    return tuple(max(seconds * (by - 1), LEAST_LEFT_S) for by in _OUTLIVED)
