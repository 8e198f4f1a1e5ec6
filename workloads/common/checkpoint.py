"""Named arrays and a record of how far training is, in one .npz file that is replaced as a whole."""

import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["UnusableWeights", "below", "read_checkpoint", "unusable_if_wrong", "write_checkpoint"]

_COUNTS: Final = "counts"

Counts = TypeVar("Counts", bound=msgspec.Struct)


class UnusableWeights(Exception):
    """A file of weights is missing, damaged, or of another network."""


def write_checkpoint(path: Path, arrays: Mapping[str, NDArray[Any]], counts: msgspec.Struct) -> None:
    """Write `path` as a whole: whoever reads it, and whenever this process dies, it is the old file or the new one."""
    held = {**arrays, _COUNTS: np.array(msgspec.json.encode(counts))}
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **held)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_checkpoint(path: Path, of: type[Counts]) -> tuple[dict[str, NDArray[Any]], Counts]:
    """Return the arrays that `path` holds and how far it was. Raises UnusableWeights."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        return arrays, msgspec.json.decode(arrays.pop(_COUNTS).item(), type=of)
    except OSError as error:
        raise UnusableWeights(f"{path}: {error.strerror or error}") from None
    except (KeyError, ValueError, AttributeError, zipfile.BadZipFile, msgspec.MsgspecError):
        raise UnusableWeights(f"{path} holds no weights that this workload has saved") from None


@contextmanager
def unusable_if_wrong(path: Path) -> Iterator[None]:
    """Within it, KeyError and ValueError mean that what was read from `path` is of another network."""
    try:
        yield
    except (KeyError, ValueError) as error:
        raise UnusableWeights(f"{path}: {error}") from None


def below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return those of `arrays` whose names begin with `prefix`, by what follows it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
