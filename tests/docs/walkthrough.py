"""Runs the examples of a document: the commands of its `console` blocks, in order, with the outputs that it shows.

In such a block `$ ` begins a command, `> ` goes on with it, and the other lines are its output, with `…` for what may
differ: a part of a line, or lines. A block after a line such as `wrap.sh`: is that file. Comments that no reader sees:
`<!-- needs: uv -->` or `<!-- needs: import hydra -->` skips a section where that is missing, and
`<!-- until: COMMAND -->` waits for the command's success.
"""

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.cli.foreground import SLOW_START
from tests.patience import PATIENCE_S

__all__ = ["Section", "Shell", "Step", "sections_of"]

_HEADING: Final = re.compile(r"^##+ ")
_FILE: Final = re.compile(r"^`([\w.-]+)`:$")
_DIRECTIVE: Final = re.compile(r"^<!-- (needs|until): (.*) -->$")
_END: Final = "\x01"


class Step(NamedTuple):
    """One thing to do: `kind` is `run` (`text`, which prints `expected`), `until` (`text` succeeds), or `write`.

    Of `write`, `text` is the name of the file and `expected` what it holds.
    """

    kind: str
    text: str
    expected: str


class Section(NamedTuple):
    """What stands under one heading. `needs`: programs without which it cannot be tried."""

    title: str
    needs: tuple[str, ...]
    steps: tuple[Step, ...]


def sections_of(document: Path) -> list[Section]:
    """Return the sections that have something to run."""
    sections: list[Section] = []
    title, needs, steps = "", list[str](), list[Step]()
    lines = iter([*document.read_text().splitlines(), "## "])
    name = ""
    for line in lines:
        if _HEADING.match(line):
            if any(step.kind == "run" for step in steps):
                sections.append(Section(title, tuple(needs), tuple(steps)))
            title, needs, steps = line.lstrip("# "), [], []
        elif directive := _DIRECTIVE.match(line):
            if directive[1] == "needs":
                needs.append(directive[2])
            else:
                steps.append(Step("until", directive[2], ""))
        elif line.startswith("```") and line != "```console":
            body = "".join(f"{one}\n" for one in _block(lines))
            if name:
                steps.append(Step("write", name, body))
        elif line == "```console":
            steps += _commands(_block(lines))
        if line:
            file = _FILE.match(line)
            name = file[1] if file else ""
    return sections


class Shell:
    """One bash, in `folder`, with an environment that is `environ` and nothing else."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def do(self, step: Step) -> None:
        """Carry it out. Raises AssertionError where the document is wrong."""
        if step.kind == "write":
            (self._folder / step.text).write_text(step.expected)
        elif step.kind == "until":
            deadline = time.monotonic() + PATIENCE_S
            while not self.run(f"({step.text}) >/dev/null 2>&1; echo $?").endswith("0"):
                assert time.monotonic() < deadline, f"not after {PATIENCE_S:.0f} s: {step.text}"
        else:
            printed = self.run(step.text)
            assert matches(step.expected, printed), f"$ {step.text}\nprinted:\n{printed}\nexpected:\n{step.expected}"

    def run(self, command: str) -> str:
        """Return what the command prints, without spaces at the ends of lines and empty lines at the end."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '{_END}\\n'\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            before, end, _ = line.partition(_END)
            if not SLOW_START.fullmatch(before.rstrip()):
                lines.append(before.rstrip())
            if end:
                return "\n".join(lines).rstrip()
        raise AssertionError(f"the shell has ended at: {command}")

    def close(self) -> None:
        """End the shell."""
        self._bash.kill()
        self._bash.communicate()


def matches(expected: str, printed: str) -> bool:
    """Return whether the output is as shown: a line that is only `…` stands for any number of lines, or none."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, f"{printed}\n" if printed else "") is not None


def _block(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == "```":
            return
        yield line


def _commands(lines: Iterator[str]) -> Iterator[Step]:
    command, output = "", list[str]()
    for line in lines:
        if line.startswith("$ "):
            if command:
                yield Step("run", command, "\n".join(output))
            command, output = line[2:], []
        elif line.startswith("> "):
            command += "\n" + line[2:]
        else:
            output.append(line)
    if command:
        yield Step("run", command, "\n".join(output))
