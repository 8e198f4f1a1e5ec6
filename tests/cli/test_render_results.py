"""The table of an array's results, and the bars of the mean score."""

from gpusched.model.array import MemberResult
from gpusched.render.results import draw_results


def member(number: int, score: float, message: str | None = None) -> MemberResult:
    return MemberResult(f"run-1[{number}]", number, {"seed": str(number % 2)}, "failed", 1.0, score, {}, message)


def lines(scores: list[float], width: int | None, message: str | None = None) -> list[str]:
    members = [member(number, score, message) for number, score in enumerate(scores)]
    return [line.plain for line in draw_results(members, ["seed"], width)]


def test_scores_that_are_all_the_same_are_called_so_and_bars_have_no_other_beginning() -> None:
    assert any("MEAN SCORE, ALL THE SAME" in line for line in lines([0.5, 0.5], None))
    assert any("MEAN SCORE, FROM 0" in line for line in lines([0.1, 0.5], None))


def test_a_message_is_cut_only_where_the_terminal_ends() -> None:
    message = "command.0 crashed with code 1: the learning rate is above what this optimiser can take"
    assert message in lines([1.0], None, message)[1]
    assert message in lines([1.0], 150, message)[1]
    assert len(lines([1.0], 80, message)[1]) <= 80
