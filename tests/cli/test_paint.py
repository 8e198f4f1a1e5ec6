"""Styled text: it takes the columns that it says, and shows no colours where there are none."""

import io

import pytest

from gpusched.render.ansi import Text, colours_of, painted, width_of


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pieces_keep_their_styles() -> None:
    text = Text("a", "bold").append("b").append_text(Text.assemble("c", ("d", "red")))

    assert text.plain == "abcd"
    assert painted(text.pieces, 16) == "\x1b[1ma\x1b[0mbc\x1b[31md\x1b[0m"
    assert painted(text.pieces, 0) == "abcd"


@pytest.mark.parametrize(
    ("style", "sixteen", "many"),
    [
        ("bold red", "1;31", "1;31"),
        ("dim", "2", "2"),
        ("bright_black", "90", "90"),
        ("black on #5fafff", "30;46", "30;48;5;75"),
        ("white on #585858", "37;100", "37;48;5;240"),
        ("white on #875f5f", "37;100", "37;48;5;95"),
        ("white on #d70000", "37;41", "37;48;5;160"),
    ],
)
def test_a_style_is_as_near_as_the_terminal_comes(style: str, sixteen: str, many: str) -> None:
    assert painted([("x", style)], 16) == f"\x1b[{sixteen}mx\x1b[0m"
    assert painted([("x", style)], 256) == f"\x1b[{many}mx\x1b[0m"


@pytest.mark.parametrize(("width", "shown"), [(0, ""), (1, "a"), (2, "a"), (3, "a字"), (4, "a字b"), (9, "a字b")])
def test_what_is_cut_ends_at_a_column_and_never_in_a_wide_character(width: int, shown: str) -> None:
    text = Text.assemble(("a字", "red"), "b")
    text.truncate(width)

    assert text.plain == shown


def test_a_short_text_is_filled_up() -> None:
    text = Text("字")
    text.truncate(4, pad=True)

    assert (text.plain, text.cell_len) == ("字  ", 4)


def test_no_text_moves_the_cursor_whoever_wrote_it() -> None:
    text = Text("a\x1b[2J\n", "red")

    assert painted(text.pieces, 0) == "a?[2J?"
    assert painted(text.pieces, 16) == "\x1b[31ma?[2J?\x1b[0m"


def test_spaces_at_the_end_go_whatever_their_style() -> None:
    text = Text.assemble("a ", (" ", "red"), "")
    text.rstrip()

    assert text.plain == "a"


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({"TERM": "xterm-256color"}, 256),
        ({"TERM": "linux"}, 16),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 256),
        ({"TERM": "dumb"}, 0),
        ({"TERM": ""}, 0),
        ({}, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, 0),
    ],
)
def test_colours_are_those_that_the_terminal_has_and_the_person_wants(
    environment: dict[str, str], colours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert colours_of(Screen()) == colours
    assert colours_of(io.StringIO()) == 0


def test_a_pipe_is_as_wide_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width_of(io.StringIO(), 140) == 140
    monkeypatch.setenv("COLUMNS", "77")
    assert width_of(io.StringIO(), 140) == 77
    for odd in ("0", "-3", "wide", "9" * 5000):
        monkeypatch.setenv("COLUMNS", odd)
        assert width_of(io.StringIO(), 140) == 140
