"""A page that takes each change has the whole, whatever has changed."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpusched.web.changes import Changes

jobs = st.dictionaries(st.sampled_from([f"run-{n}" for n in range(6)]), st.integers(0, 2), max_size=6).flatmap(
    lambda found: st.permutations([{"id": name, "score": score} for name, score in found.items()])
)
views = st.tuples(st.sampled_from([{"host": "a", "busy": 1}, {"host": "a", "busy": 2}, {"error": "gone"}]), jobs)


class Page:
    """What the page does with a moment."""

    def __init__(self) -> None:
        self.around: dict[str, Any] = {}
        self.jobs: dict[str, Any] = {}
        self.order: list[str] = []

    def take(self, part: dict[str, Any]) -> None:
        jobs, self.order = part.pop("jobs"), part.pop("order", self.order)
        del part["number"]
        self.around = part or self.around
        self.jobs |= {job["id"]: job for job in jobs}
        self.jobs = {name: self.jobs[name] for name in self.order}

    def listed(self) -> list[Any]:
        return [self.jobs[name] for name in self.order]


@given(st.lists(views, min_size=1))
def test_the_changes_one_after_the_other_make_the_whole(
    seen: list[tuple[dict[str, Any], list[dict[str, Any]]]],
) -> None:
    changes, page, number = Changes(), Page(), 0
    for around, rows in seen:
        moment = changes.of(around, rows)
        if moment is None:
            assert (page.around, page.listed()) == (around, rows), "nothing was to be sent"
            continue
        number += 1
        assert moment.number == number
        page.take(json.loads(moment.changed))
        whole = json.loads(moment.whole)
        assert (page.around, page.listed()) == (around, rows)
        assert (whole["jobs"], whole["order"]) == (rows, [job["id"] for job in rows])


def test_what_stays_as_it_is_is_not_sent_again() -> None:
    changes, rows = Changes(), [{"id": f"run-{number}", "score": 0} for number in range(1000)]
    changes.of({"host": "a"}, rows)
    assert changes.of({"host": "a"}, rows) is None
    rows[7] = {"id": "run-7", "score": 1}
    moment = changes.of({"host": "a"}, rows)
    assert moment is not None
    assert json.loads(moment.changed) == {"number": 2, "jobs": [{"id": "run-7", "score": 1}]}
