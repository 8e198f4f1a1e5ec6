"""The command line is thin: a command is parsed, handed to the API, and what comes back is drawn."""

from pathlib import Path
from typing import Final

import pytest

from tests.test_layering import ROOT, imports, sources

CLI: Final = ROOT / "gpusched" / "cli"
ALLOWED: Final = {"api", "cli", "errors", "model", "render", "settings", "times", "units", "web"}


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def beyond(path: Path) -> set[str]:
    """Return the modules of gpusched that a file imports and a command should not, without `gpusched.`."""
    names = {name if is_module(name) else name.rpartition(".")[0] for name in imports(path)}
    below = {name.removeprefix("gpusched.") for name in names if name.startswith("gpusched.")}
    return {name for name in below if name.partition(".")[0] not in ALLOWED}


@pytest.mark.parametrize("path", sources("gpusched/cli"), ids=lambda path: path.stem)
def test_a_command_imports_the_api_and_what_draws_its_answers(path: Path) -> None:
    assert not beyond(path)
