"""`man gpusched` is the help of the command line, and man(1) can read it."""

import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from gpusched.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpusched.1"


def test_the_page_is_that_of_the_command_line_as_it_is() -> None:
    loader = SourceFileLoader("man_page", str(ROOT / "scripts" / "man-page"))
    spec = spec_from_loader("man_page", loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    assert PAGE.read_text() == script.page(), "write it again: scripts/man-page"


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man here")
def test_man_shows_every_command_and_complains_of_nothing() -> None:
    shown = subprocess.run(
        ["man", "--warnings", "-l", PAGE],
        capture_output=True,
        text=True,
        check=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert shown.stderr == ""
    assert all(f"gpusched {name}" in shown.stdout for name in COMMANDS)
