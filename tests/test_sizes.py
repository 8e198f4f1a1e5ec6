"""No module or function of gpusched is longer, and none has more parameters, than a person takes in at once."""

import ast
from pathlib import Path

import pytest

from tests.test_layering import ROOT, sources

MOST_LINES_OF_A_MODULE = 350
MOST_LINES = 60
MOST_PARAMETERS = 8


@pytest.mark.parametrize("path", sources("gpusched"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_too_long_or_has_too_many_parameters(path: Path) -> None:
    too_large = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines, {parameters} parameters"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
        for parameters in [len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])]
        if node.end_lineno - node.lineno + 1 > MOST_LINES or parameters > MOST_PARAMETERS
    ]
    assert not too_large


@pytest.mark.parametrize("path", sources("gpusched"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES_OF_A_MODULE
