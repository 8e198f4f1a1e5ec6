"""Defaults that documents state are those of the code."""

import inspect
import os
import re
from pathlib import Path
from typing import Final

import pytest

from gpusched import settings
from gpusched.environment import not_inherited
from gpusched.model.job import NODE_PATIENCE_S
from gpusched.settings import load_settings

DOCS: Final = Path(__file__).parents[2] / "docs"
REFERENCE: Final = (DOCS / "reference.md").read_text()
ROW: Final = re.compile(r"^\| `(GPUSCHED_(?:CONFIG|\w+_DIR))` \| .* \| (.*) \|$", re.MULTILINE)
PLACES: Final = dict(ROW.findall(REFERENCE))


def test_the_reference_lists_each_variable_that_names_a_directory() -> None:
    assert set(re.findall(r'"(GPUSCHED_\w+)"', inspect.getsource(settings))) == {*PLACES, settings.DRIVER_PATIENCE}


def test_the_default_patience_with_a_driver_is_the_one_that_the_reference_lists() -> None:
    assert f"`{settings.DRIVER_PATIENCE}` (default {settings.driver_patience_s({}):g})" in REFERENCE


@pytest.mark.parametrize(
    ("field", "variable", "environ"),
    [
        ("state_dir", "GPUSCHED_STATE_DIR", {}),
        ("state_dir", "GPUSCHED_STATE_DIR", {"XDG_STATE_HOME": "/x"}),
        ("runtime_dir", "GPUSCHED_RUNTIME_DIR", {"XDG_RUNTIME_DIR": "/x"}),
        ("runtime_dir", "GPUSCHED_RUNTIME_DIR", {}),
    ],
)
def test_the_default_of_a_directory_is_one_that_the_reference_lists(
    field: str, variable: str, environ: dict[str, str], tmp_path: Path
) -> None:
    found = str(getattr(load_settings({"HOME": str(tmp_path), **environ}), field))
    listed = PLACES[variable].replace("UID", str(os.getuid())).replace("~", str(tmp_path))
    for name, value in environ.items():
        listed = listed.replace(f"${name}", value)
    assert f"`{found}`" in listed


def test_the_configuration_is_read_where_the_reference_places_it(tmp_path: Path) -> None:
    file = tmp_path / ".config/gpusched/config.toml"
    assert "`~/.config/gpusched/config.toml`" in PLACES["GPUSCHED_CONFIG"]
    file.parent.mkdir(parents=True)
    file.write_text('most_jobs = 7\nstate_dir = "here"')
    found = load_settings({"HOME": str(tmp_path)})
    assert (found.most_jobs, found.state_dir) == (7, file.parent / "here")


def test_the_patience_of_a_node_is_the_one_on_the_pages() -> None:
    for page in ("channel.md", "clusters.md"):
        assert re.search(rf"--patience[^|]*{NODE_PATIENCE_S} ?s", (DOCS / page).read_text()), page


def test_the_reference_lists_each_variable_that_no_job_inherits() -> None:
    assert [name for name in not_inherited() if f"`{name}`" not in REFERENCE] == []
