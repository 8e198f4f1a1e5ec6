"""Arrays as raw frames: what of NumPy may travel, how it is described, and how it is read back. Pure: no sockets.

Only numbers and booleans travel, little-endian and C-contiguous, and no pickle ever. Every size in a header is held
against the bytes that really came before an array is made, so a lying header costs nothing.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from gpusched.channel.messages import MAX_DIMENSIONS, MAX_FRAMES, MAX_NAME, ArraySpec
from gpusched.channel.values import Array, Meta
from gpusched.errors import ProtocolError, UsageError

__all__ = [
    "ALIGNMENT",
    "DTYPES",
    "extent",
    "pack_arrays",
    "pieces",
    "plain_meta",
    "split",
    "unpack_arrays",
    "unpack_block",
]

DTYPES: Final = {
    dtype.str: dtype
    for dtype in (
        np.dtype(name) for name in ("?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")
    )
}
"""What may travel, as NumPy writes it."""
ALIGNMENT: Final = 64
"""Where an array may begin in a shared segment: a cache line, and as wide as any vector register."""


def pack_arrays(arrays: Mapping[str, Array], max_message: int) -> tuple[tuple[ArraySpec, ...], list[Array]]:
    """Return the description of `arrays` and, in the same order, the arrays as they go: contiguous and little-endian.

    An array that is so already is not copied. Raises UsageError, naming the array, for one that cannot travel, and when
    all together are more than `max_message` bytes.
    """
    if len(arrays) > MAX_FRAMES:
        raise UsageError(f"{len(arrays)} arrays in one message", f"send at most {MAX_FRAMES}, or stack them")
    specs, ready, total = [], [], 0
    for name, given in arrays.items():
        array = np.asarray(given)
        spec, dtype = _described(name, array.dtype, array.shape)
        total += array.nbytes or _extent(spec)
        specs.append(spec)
        ready.append(array if dtype is None and array.flags.c_contiguous else np.asarray(array, dtype, order="C"))
    if total > max_message:
        raise UsageError(f"a message of {total} bytes is over the {max_message} allowed", "send smaller batches")
    return tuple(specs), ready


class _Layout(msgspec.Struct, frozen=True):
    """Where the arrays of a message lie in a segment that holds them all, and what they are in bytes.

    `arrays`: the name, shape, dtype and bytes of each.
    """

    pieces: tuple[tuple[int, int], ...]
    arrays: tuple[tuple[str, tuple[int, ...], np.dtype[Any], int], ...]
    total: int


@functools.lru_cache(maxsize=64)
def _layout(specs: tuple[ArraySpec, ...]) -> _Layout:
    """Work it out once: one batch, one version is as the other. Raises ProtocolError for what no sender may send."""
    if len({spec.name for spec in specs}) != len(specs):
        raise ProtocolError("two arrays have one name")
    found, arrays, end = [], [], 0
    for spec in specs:
        dtype = DTYPES.get(spec.dtype)
        if dtype is None:
            raise ProtocolError(f"array {spec.name!r}: dtype {spec.dtype!r} is not one that travels")
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + math.prod(spec.shape) * dtype.itemsize
        found.append((start, end))
        arrays.append((spec.name, spec.shape, dtype, end - start))
    return _Layout(tuple(found), tuple(arrays), sum(_extent(spec) for spec in specs))


def pieces(specs: tuple[ArraySpec, ...]) -> tuple[tuple[int, int], ...]:
    """Return where each array lies in a segment that holds them all: its first byte, and the one after its last.

    Both sides work this out, so no offset travels. Raises ProtocolError for a dtype that does not travel, and for two
    arrays of one name.
    """
    return _layout(specs).pieces


def extent(specs: tuple[ArraySpec, ...]) -> int:
    """Return the bytes that a segment must have to hold these arrays. Raises ProtocolError as pieces() does."""
    return _layout(specs).pieces[-1][1] if specs else 0


def split(specs: tuple[ArraySpec, ...], block: Array) -> list[Array]:
    """Return the bytes of each array in a segment, as views on `block`."""
    return [block[start:stop] for start, stop in pieces(specs)]


def unpack_block(specs: tuple[ArraySpec, ...], block: Array, max_message: int) -> dict[str, Array]:
    """Return the named arrays, as views on the bytes of a segment that holds them all.

    Raises ProtocolError, and nothing else, when it does not, or they are more than `max_message`.
    """
    layout = _bounded(specs, max_message)
    found = layout.pieces
    if found and found[-1][1] > block.nbytes:
        raise ProtocolError(f"arrays of {found[-1][1]} bytes do not fit into a segment of {block.nbytes}")
    return {
        name: np.ndarray(shape, dtype, block, start)
        for (name, shape, dtype, _), (start, _) in zip(layout.arrays, found, strict=True)
    }


def unpack_arrays(
    specs: tuple[ArraySpec, ...], frames: Sequence[memoryview | Array], max_message: int
) -> dict[str, Array]:
    """Return the named arrays, as views on `frames` where their memory is aligned. Shapes and dtypes are `specs`'.

    Raises ProtocolError, and nothing else, when the frames differ from `specs`, or are more than `max_message`.
    """
    if len(specs) != len(frames):
        raise ProtocolError(f"{len(frames)} arrays came, the header lists {len(specs)}")
    views = {}
    for (name, shape, dtype, needed), frame in zip(_bounded(specs, max_message).arrays, frames, strict=True):
        if needed != frame.nbytes:
            raise ProtocolError(f"array {name!r}: {frame.nbytes} bytes came, its shape needs {needed}")
        array: Array = np.ndarray(shape, dtype, frame)
        # A small frame lies anywhere in libzmq's receive buffer; frameworks copy or refuse unaligned memory.
        views[name] = array if array.flags.aligned else array.copy()
    return views


def plain_meta(meta: Mapping[str, object]) -> Meta:
    """Return `meta` with NumPy's scalars as Python's. Raises UsageError for what is no number, boolean or text."""
    plain: Meta = {}
    for key, value in meta.items():
        scalar = value.item() if isinstance(value, np.generic) else value
        if not isinstance(key, str) or not isinstance(scalar, bool | int | float | str):
            raise UsageError(f"meta[{key!r}]: {type(value).__name__} cannot travel", "use a number, a bool or a str")
        plain[key] = scalar
    return plain


def _bounded(specs: tuple[ArraySpec, ...], max_message: int) -> _Layout:
    layout = _layout(specs)
    if layout.total > max_message:
        raise ProtocolError(f"the arrays are more than the {max_message} bytes allowed")
    return layout


@functools.lru_cache(maxsize=4 * MAX_FRAMES, typed=True)
def _described(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[ArraySpec, np.dtype[Any] | None]:
    """Return how a header describes an array, and the dtype that it has to get for that, None for its own."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise UsageError(f"an array's name is {name!r}", f"use a text of 1 to {MAX_NAME} characters")
    if len(shape) > MAX_DIMENSIONS:
        raise UsageError(f"array {name!r} has {len(shape)} dimensions", f"reshape it to {MAX_DIMENSIONS} at the most")
    little = dtype.newbyteorder("<").str
    if little not in DTYPES:
        raise UsageError(f"array {name!r}: dtype {dtype} cannot travel", f"convert it to one of {', '.join(DTYPES)}")
    return ArraySpec(name, little, shape), None if dtype.str == little else DTYPES[little]


def _extent(spec: ArraySpec) -> int:
    """Return the bytes of `spec`, an empty dimension counted as 1: NumPy refuses (0, 2**62), which holds nothing."""
    return math.prod(max(size, 1) for size in spec.shape) * DTYPES[spec.dtype].itemsize
