"""Amounts: memory in whole MiB, fractions in whole 1/10 000, numbers. Floats are only in what people type and read."""

import re
from typing import Final

from gpusched.errors import UsageError

__all__ = [
    "FRACTION_ONE",
    "format_mib",
    "format_seconds",
    "fraction_of",
    "number",
    "parse_count",
    "parse_fraction",
    "parse_mib",
    "plural",
    "portion",
]

FRACTION_ONE: Final = 10_000
"""The whole, as a fraction: 1.0 is 10 000."""

_LARGEST_MIB: Final = 1 << 30  # 1 PiB: far above any host, far below where sums could surprise
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LARGEST_COUNT: Final = 1_000_000
_MEMORY: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,6}))?\s*([kmgt])(i?b?)", re.ASCII | re.IGNORECASE)
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4}


def parse_mib(text: object, what: str = "memory") -> int:
    """Read an amount of memory such as `2GiB`, `512MiB`, `1.5 GiB` or `6G` as whole MiB, rounded down.

    K, M, G and T are powers of 1024, as to Slurm and Docker, with iB or i behind them, or alone; KB, MB, GB and TB are
    powers of 1000. Capitals or not is the same.

    Raises UsageError, naming `what`, for anything else: no unit, zero, negative, NaN, an unknown unit, over 1 PiB.
    """
    hint = "give a positive number and a unit, such as 512MiB, 2GiB or 6G"
    match = _MEMORY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UsageError(f"{what}: {text!r} is not an amount of memory", hint)
    whole, decimals, prefix, rest = match.groups()
    decimals, base = decimals or "", 1000 if rest.upper() == "B" else 1024
    mib = int(whole + decimals) * int(base ** _POWERS[prefix.upper()]) // int(10 ** len(decimals)) // (1 << 20)
    if not 0 < mib <= _LARGEST_MIB:
        raise UsageError(f"{what}: {text!r} is {'less than 1 MiB' if mib == 0 else 'more than 1 PiB'}", hint)
    return mib


def parse_fraction(value: object, what: str = "fraction") -> int:
    """Read a number in (0, 1] as whole 1/10 000, rounded down. Raises UsageError, naming `what`, for anything else."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None or not 1 / FRACTION_ONE <= number <= 1:  # NaN fails this comparison too
        raise UsageError(f"{what}: {value!r} is not a fraction", "give a number above 0 and at most 1, such as 0.75")
    return int(number * FRACTION_ONE + 1e-6)


def parse_count(text: str, what: str = "count") -> int:
    """Read a whole number from 0 to 1 000 000. Raises UsageError, naming `what`, for anything else."""
    digits = text.strip()
    if not re.fullmatch(r"\d{1,9}", digits) or int(digits) > _LARGEST_COUNT:
        raise UsageError(f"{what}: {text!r} is not a count", f"give a whole number from 0 to {_LARGEST_COUNT}")
    return int(digits)


def fraction_of(part: int, whole: int) -> int:
    """Return part / whole in 1/10 000, rounded down, so that the fraction never stands for more than `part`."""
    return part * FRACTION_ONE // whole


def portion(whole: int, fraction: int) -> int:
    """Return `fraction` (1/10 000) of `whole`, rounded down."""
    return whole * fraction // FRACTION_ONE


def format_mib(mib: int) -> str:
    """Return an amount for people: `512 MiB`, `15.8 GiB`."""
    return f"{mib / 1024:.1f} GiB" if mib >= 10 * 1024 else f"{mib} MiB"


def format_seconds(seconds: float) -> str:
    """Return a span of time, from a minute on in its two largest units: `2.5 s`, `3m07s`, `2h05m`, `3d04h`."""
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02d}h"


def number(count: int, what: str) -> str:
    """Return `1 learner` or `32 actors`."""
    return f"{count} {what}" if count == 1 else f"{count} {plural(what)}"


def plural(what: str) -> str:
    """Return `actors` or `coaches`."""
    return what + ("es" if what.endswith(("s", "x", "z", "ch", "sh")) else "s")
