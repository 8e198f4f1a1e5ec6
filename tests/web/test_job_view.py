"""What the page of a job draws of its reports."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpusched.web.job_view import curves

values = st.none() | st.booleans() | st.text(max_size=3) | st.floats(-1e6, 1e6) | st.integers(-(2**40), 2**40)
reports = st.dictionaries(st.sampled_from(["time", "score", "step", "note", "loss"]), values)


@given(st.lists(reports, max_size=50))
def test_any_reports_become_columns_of_one_length(found: list[dict[str, Any]]) -> None:
    drawn: Any = curves(found)
    assert all(isinstance(time, float) for time in drawn["time"])
    assert {len(column) for column in drawn["numbers"].values()} <= {len(drawn["time"])}
    assert "time" not in drawn["numbers"]


def test_few_reports_are_drawn_as_they_are_and_a_number_that_is_missing_is_none() -> None:
    found = curves([{"time": 1, "score": 2.5, "note": "x", "ok": True}, {"time": 2, "loss": 1}, {"score": 3}])
    assert found == {"time": [1.0, 2.0], "numbers": {"score": [2.5, None], "loss": [None, 1.0]}}


def test_many_reports_become_means_of_as_many_each() -> None:
    found: Any = curves([{"time": float(at), "score": float(at % 2)} for at in range(6000)])
    assert len(found["time"]) == 600
    assert found["time"][0] == 4.5
    assert set(found["numbers"]["score"]) == {0.5}
