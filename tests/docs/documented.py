"""What documents quote: command lines and options, in fenced blocks and in inline code."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DOCUMENTS", "Quoted", "commands_in", "options_in", "prose_of"]

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = sorted(
    path.relative_to(ROOT)
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        ROOT / "systemd/README.md",
    )
)
_FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_COMMAND: Final = re.compile(
    r"""(?:^\s*|[;&|("']\s*)        # where a shell expects a command
        (?:[\w.-]*[$#]\s+)?          # a prompt
        (?:\w+=\S+\s+)*              # variables
        (?:\S*/)?gpusched\s+(?=[\w-])(?P<rest>.*)""",
    re.VERBOSE,
)
_DESCRIPTION: Final = re.compile(r"\s{2,}|\s#\s|…")


class Quoted(NamedTuple):
    """The `words` of a command line after `gpusched`; `whole`: it stands in a block, and can be typed as it is."""

    document: Path
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.document}: gpusched {' '.join(self.words)}"


def prose_of(document: Path) -> str:
    """Return the text of a document without its fenced blocks."""
    return _FENCE.sub("", (ROOT / document).read_text())


def commands_in(document: Path) -> Iterator[Quoted]:
    """Yield each quoted command line of gpusched."""
    text = (ROOT / document).read_text()
    lines = (line for block in _FENCE.finditer(text) for line in block[0].replace("\\\n", " ").splitlines()[1:-1])
    inline = (" ".join(code[1].split()) for code in _INLINE.finditer(prose_of(document)))
    for whole, source in ((True, lines), (False, inline)):
        for line in source:
            for found in _COMMAND.finditer(line):
                if words := _words(_DESCRIPTION.split(found["rest"])[0]):
                    yield Quoted(document, words, whole)


def options_in(document: Path) -> Iterator[str]:
    """Yield each option that inline code begins with, as `--procs max` does."""
    for code in _INLINE.finditer(prose_of(document)):
        if code[1].startswith("--"):
            yield from (word.partition("=")[0] for word in code[1].split() if word.startswith("--") and word != "--")


def _words(text: str) -> tuple[str, ...]:
    """Return the words up to the end of the command; what a quote was opened for elsewhere ends it, too."""
    reader = shlex.shlex(text, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = []
    try:
        for word in reader:
            if set(word) <= set("();<>|&"):
                break
            words.append(word)
    except ValueError:
        pass
    return tuple(words)
