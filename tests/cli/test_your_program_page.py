"""docs/your-program.md: each command on it prints what the page shows, in a home of one's own, with a real daemon."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli.command import Command
from tests.docs.walkthrough import Section, Shell, sections_of
from tests.programs import find_program
from tests.stand_in.library import StandIn

PAGE: Final = Path(__file__).parents[2] / "docs" / "your-program.md"
SECTIONS: Final = sections_of(PAGE)
ONE_GPU: Final = "gpus 1\nset * used 0\n"
GPUSCHED: Final = f"#!{sys.executable}\nimport sys\nfrom gpusched.cli.main import main\nsys.exit(main())\n"
PYTHON: Final = f'#!/bin/sh\nexec {Path(sys.base_prefix) / "bin" / "python3"} "$@"\n'


@pytest.fixture
def home() -> Iterator[Path]:
    """A home with a short path: sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="g", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture
def shell(home: Path, stand_in: StandIn) -> Iterator[Shell]:
    """A person's shell on a host with one GPU; `gpusched` is on its path, its package in no Python that is."""
    programs, work = home / "bin", home / "work"
    programs.mkdir()
    work.mkdir()
    write_program(programs / "gpusched", GPUSCHED)
    write_program(programs / "python3", PYTHON)
    nvml = stand_in.host(ONE_GPU).variables
    command = Command(home)
    kept = {name: value for name, value in command.env.items() if name.startswith(("GPUSCHED_", "HOME", "LANG", "LC_"))}
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    shell = Shell(work, {**kept, **nvml, "PATH": path, "TMPDIR": str(home)})
    yield shell
    shell.close()
    command.end()


def provide(need: str, programs: Path) -> None:
    """Put a program there, or as `python` one that can `import NAME`. Skips the test where it is missing."""
    if need.startswith("import "):
        pytest.importorskip(need.removeprefix("import "))
        write_program(programs / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    elif (found := find_program(need)) is not None:
        (programs / need).symlink_to(found)
    else:
        pytest.skip(f"{need} is not installed")


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_page_has_examples() -> None:
    assert len(SECTIONS) > 5


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_a_section_of_the_page_does_what_it_shows(section: Section, shell: Shell, home: Path) -> None:
    for need in section.needs:
        provide(need, home / "bin")
    for step in section.steps:
        shell.do(step)
