"""docs/python.md: its blocks run as one session and print what the page shows; its tables are those of the code."""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpusched.api import arguments
from tests.cli.command import Command
from tests.docs.walkthrough import matches
from tests.patience import PATIENCE_S
from tests.stand_in.library import StandIn

PAGE: Final = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
BLOCK: Final = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
ROW: Final = re.compile(r"^\| `(\w+)` \| (.*) \|$", re.MULTILINE)
SESSION: Final = """
import ast, asyncio, contextlib, io, json, sys
outputs, names = [], {}
for block in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        waits = eval(compile(block, "python.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if waits is not None:
            asyncio.run(waits)
    outputs.append(output.getvalue())
print(json.dumps(outputs))
"""
"""Runs blocks as a notebook does: one namespace, and `await` is allowed."""


@pytest.fixture
def command(tmp_path: Path, stand_in: StandIn) -> Iterator[Command]:
    host = stand_in.host("gpus 1\nset * used 0\n").variables
    one = Command(tmp_path, host)
    yield one
    one.end()


def test_the_blocks_of_the_page_print_what_it_shows(command: Command) -> None:
    blocks = BLOCK.findall(PAGE)

    done = subprocess.run(
        [sys.executable, "-c", SESSION],
        input=json.dumps([code for code, _ in blocks]),
        capture_output=True,
        text=True,
        env=command.env,
        cwd=command.home,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    for (code, expected), printed in zip(blocks, json.loads(done.stdout), strict=True):
        assert matches(expected, printed.rstrip("\n")), f"{code}\nprinted:\n{printed}\nexpected:\n{expected}"


def test_the_page_has_examples() -> None:
    assert len(BLOCK.findall(PAGE)) > 6
    assert PAGE.count("```python") == len(BLOCK.findall(PAGE))


@pytest.mark.parametrize(
    "table",
    [
        "PlanArguments",
        "ListenArguments",
        "JoiningArguments",
        "ManifestArguments",
        "QueueArguments",
        "ClusterArguments",
        "AmountArguments",
        "CommandArguments",
        "ProgramArguments",
    ],
)
def test_the_tables_of_arguments_are_those_of_the_code(table: str) -> None:
    (found,) = ast.parse(inspect.getsource(getattr(arguments, table))).body
    assert isinstance(found, ast.ClassDef)
    names = [
        each.target.id for each in found.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    texts = [
        each.value.value.removesuffix(".").replace("\n", " ")
        for each in found.body[1:]
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
    ]

    rows = dict(ROW.findall(PAGE.partition(f"<!-- {table} -->")[2].partition("\n\n")[0]))

    assert rows == dict(zip(names, texts, strict=True))
