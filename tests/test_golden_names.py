"""Names on the wire and on disk, held by a golden file: a renamed class or module must not change what others read.

Each line is one shape: its tag, then its fields as they are encoded. Class names are left out, as they are nobody's
business outside. After a change that is meant: `python -m tests.test_golden_names`.
"""

import enum
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

import gpusched

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden" / "shapes.txt"
NAMES = re.compile(r"\bGPUSCHED_[A-Z_]+[A-Z]\b")
FILES = re.compile(r'"([a-z][a-z_]*\.(?:json|jsonl|lock|log|db|sock|pid|toml))"')


def _classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(gpusched.__path__, "gpusched."):
        if module.name.endswith(("__main__", "sitecustomize")) or module.name.startswith("gpusched.template"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and value.__module__ == module.name:
                yield value


def _shape(struct: type[msgspec.Struct]) -> str:
    config = struct.__struct_config__
    tag = f"{config.tag_field}={config.tag}" if config.tag is not None else "-"
    return f"struct {tag}: {' '.join(struct.__struct_encode_fields__)}".rstrip()


def shapes() -> list[str]:
    """What the package encodes: shapes of structs, values of enums, names of variables and of files."""
    lines: list[str] = []
    for kind in _classes():
        if issubclass(kind, msgspec.Struct) and kind.__struct_fields__:
            lines.append(_shape(kind))
        elif issubclass(kind, enum.Enum) and len(kind):
            lines.append(f"enum: {' '.join(str(member.value) for member in kind)}")
    source = "\n".join(path.read_text() for path in (ROOT / "gpusched").rglob("*.py"))
    lines += [f"variable: {name}" for name in set(NAMES.findall(source))]
    lines += [f"file: {name}" for name in set(FILES.findall(source))]
    return sorted(lines)


def test_names_on_the_wire_and_on_disk_are_those_of_the_golden_file() -> None:
    assert shapes() == GOLDEN.read_text().splitlines(), "if it is meant: python -m tests.test_golden_names"


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{line}\n" for line in shapes()))
