"""No package, module or function of gpusched is longer, none has more parameters, than a person takes in at once."""

import ast
import tokenize
from pathlib import Path

import pytest

from tests.test_layering import ROOT, sources

MOST_LINES_OF_CODE_OF_A_PACKAGE = 4000  # without blank lines, comments and docstrings
MOST_LINES_OF_A_MODULE = 350
MOST_LINES = 60
MOST_PARAMETERS = 8
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(path: Path) -> int:
    """Return how many lines a module has that are neither blank, nor a comment, nor a docstring."""
    with path.open() as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in NO_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    texts = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr)]
    words = [node for node in texts if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    return len(lines.difference(*(range(node.lineno, (node.end_lineno or 0) + 1) for node in words)))


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


@pytest.mark.parametrize("package", sorted(path.parent.name for path in (ROOT / "gpusched").glob("*/__init__.py")))
def test_no_package_is_too_large(package: str) -> None:
    assert sum(map(lines_of_code, sources(f"gpusched/{package}"))) <= MOST_LINES_OF_CODE_OF_A_PACKAGE
