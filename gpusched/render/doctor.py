"""Draws findings: a mark, a name and what was found, in the width of the terminal; below it the fix, to be copied."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from gpusched.doctor.facts import Finding
from gpusched.render.ansi import is_plain
from gpusched.render.text import printable

__all__ = ["print_findings"]

_WIDTH_OF_A_PIPE: Final = 1_000_000  # one finding, one line: for grep
_LEAST_WIDTH: Final = 16
_MARKS: Final = {"ok": ("✓", "ok  "), "warning": ("!", "WARN"), "error": ("✗", "FAIL")}
_COLOURS: Final = {"ok": "green", "warning": "yellow", "error": "bold red"}


def print_findings(findings: Sequence[Finding], file: TextIO) -> None:
    """Print the findings and how many there are of each kind. Where there is no terminal, plain text without marks."""
    console = Console(file=file, highlight=False, soft_wrap=True, color_system=None if is_plain(file) else "auto")
    width = console.width if console.is_terminal else _WIDTH_OF_A_PIPE
    drawn = console.is_terminal and (file.encoding or "ascii").lower().startswith("utf")
    names = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        for line in _lines(finding, names, width, 0 if drawn else 1):
            console.print(line)
    console.print(_summary(findings))


def _lines(finding: Finding, names: int, width: int, style: int) -> Iterator[Text]:
    mark = _MARKS[finding.state][style]
    left = len(mark) + 1 + names + 2
    colour = _COLOURS[finding.state]
    lines = Text(printable(finding.found)).wrap(Console(width=width), max(_LEAST_WIDTH, width - left))
    for number, line in enumerate(lines):
        line.rstrip()
        head = Text.assemble((mark, colour), " ", (finding.check.ljust(names), "bold" if finding.state != "ok" else ""))
        yield Text.assemble(head, "  ", line) if number == 0 else Text.assemble(" " * left, line)
    if finding.fix:
        arrow = "→" if style == 0 else "fix:"
        shade = "cyan" if finding.state != "ok" else "dim"
        yield Text.assemble(" " * left, (f"{arrow} ", "dim"), (printable(finding.fix), shade))


def _summary(findings: Sequence[Finding]) -> Text:
    number: Counter[str] = Counter(finding.state for finding in findings)
    parts = [
        Text(f"{number[state]} {state}{'' if number[state] == 1 else 's'}", style=_COLOURS[state])
        for state in ("error", "warning")
        if number[state]
    ]
    return Text(", ").join(parts) if parts else Text("nothing to mend", style="green")
