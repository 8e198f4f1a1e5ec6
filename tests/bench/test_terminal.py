"""The terminal that README's pictures are drawn from shows what a real one would."""

import sys
from pathlib import Path

import pytest

from bench.terminal import Program, Terminal, draw


def shown(text: str, columns: int = 12, lines: int = 3) -> list[str]:
    terminal = Terminal(columns, lines)
    for part in text:  # as a program may be cut off amid a control sequence
        terminal.feed(part)
    return terminal.text.splitlines()


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("1\r\n2\r\n3\r\n4\r\n", ["3", "4"]),  # it scrolls
        ("longer than the line", ["longer than"]),
        ("ab\r\x1b[Kc", ["c"]),
        ("1\r\n2\r\n\x1b[2A\x1b[2Knew", ["new", "2"]),
        ("old\r\nold\x1b[Hx\x1b[K\x1b[J", ["x"]),
        ("before\x1b[?1049h\x1b[?25lother", ["other"]),
        ("\x1b]0;title\x07text", ["text"]),
    ],
)
def test_what_is_written_stands_where_a_terminal_has_it(written: str, lines: list[str]) -> None:
    assert [line for line in shown(written) if line] == lines


def test_colours_reach_the_picture(tmp_path: Path) -> None:
    from PIL import Image

    terminal = Terminal(4, 1)
    terminal.feed("\x1b[48;2;200;0;0m \x1b[0m\x1b[48;5;21m \x1b[0m")
    terminal.feed("\x1b[1;32m█\x1b[0m\x1b[94m⠿\x1b[0m")
    draw(terminal, tmp_path / "picture.png")

    with Image.open(tmp_path / "picture.png") as picture:
        seen = {colour for _, colour in picture.convert("RGB").getcolors() or []}
    assert {(200, 0, 0), (0, 0, 255), (122, 193, 114), (130, 180, 250)} <= seen


def test_a_program_is_drawn_while_it_runs_and_stopped_as_by_ctrl_c() -> None:
    code = "import sys, time; print(sys.stdout.isatty(), flush=True); time.sleep(1000)"
    with Program([sys.executable, "-c", code], {}, Terminal(20, 5)) as program:
        while "True" not in program.terminal.text:
            program.follow(0.1)
    assert "KeyboardInterrupt" in program.terminal.text
