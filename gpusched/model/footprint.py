"""What roles of jobs were measured to need of a device, and what follows from that for the next run. No I/O, no clock.

It owns the sums: how much memory to ask for, how much a context takes, and how much more after a lack of memory.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpusched.units import number

__all__ = [
    "ENOUGH_RUNS",
    "LATEST_RUNS",
    "Context",
    "Footprint",
    "MeasuredContext",
    "MeasuredUse",
    "Measurements",
    "context_elsewhere",
    "context_of",
    "enlarged",
    "kind_of",
    "named",
    "recommended",
    "use_of",
]

LATEST_RUNS: Final = 5
"""The number of the latest runs of which the largest figure counts."""

ENOUGH_RUNS: Final = 3
"""With fewer runs than these nothing is planned: their figures only advise."""

_MARGIN_PERCENT: Final = 5
_STEP_MIB: Final = 64
_MORE_PERCENT: Final = 20
_LEAST_MORE_MIB: Final = 256
_HOPPER: Final = re.compile(r"\bG?H[12]00\b")


class Footprint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the replicas of one role of a job needed of one model of devices. MiB; `ended` in Unix seconds.

    `peak_mib`: the most that any of them had allocated, as its framework counts. `device_mib`: the most that the driver
    showed for any of those of which no framework counts, with the contexts of its processes. `lacked_mib`: the limit
    at which one ran out of memory, None if none did; with it, the peaks are no proof of what it would have needed.
    """

    job: str
    ended: float
    peak_mib: int | None = None
    device_mib: int | None = None
    lacked_mib: int | None = None
    framework: str | None = None
    version: str | None = None

    def needed_mib(self, contexts_mib: int) -> int:
        """Return what it had allocated where the contexts of one replica take so much together, at least 1."""
        beyond = 0 if self.device_mib is None else self.device_mib - contexts_mib
        return max(1, self.peak_mib or 0, beyond)


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What one process with a framework took on a device beside what the framework had. MiB; Unix seconds."""

    driver: str
    framework: str
    version: str
    mib: int
    ended: float


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: footprints by key and by model of device, contexts by model. The latest come first."""

    footprints: dict[str, dict[str, tuple[Footprint, ...]]] = {}
    contexts: dict[str, tuple[Context, ...]] = {}


class MeasuredContext(msgspec.Struct, frozen=True, kw_only=True):
    """How much a context takes, in MiB: the most that `runs` with that framework have shown on a `device`.

    0 `runs`: none of this host has, and it is what was seen elsewhere.
    """

    mib: int
    runs: int
    framework: str
    device: str
    driver: str

    def __str__(self) -> str:
        if not self.runs:
            return f"as {self.framework} took on {self.device}, driver {self.driver}"
        return f"measured: {number(self.runs, 'run')} with {self.framework} on {self.device}, driver {self.driver}"


_ON_HOPPER: Final = MeasuredContext(
    mib=640, runs=0, framework="PyTorch, JAX and CuPy", device="an H200", driver="580.159"
)


class MeasuredUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a role is known to use. MiB. `peak_mib`: the most that one replica had allocated in `runs`.

    `ask_mib`: the limit that is enough by that; None where too few runs are known. `lacked_mib`: the limit at which a
    run since ran out of memory, None if none did. `device`: the model. `context`: where its context is from, None: it
    was not measured.
    """

    runs: int = 0
    peak_mib: int = 0
    ask_mib: int | None = None
    lacked_mib: int | None = None
    framework: str | None = None
    device: str = ""
    context: MeasuredContext | None = None


def enlarged(limit_mib: int) -> int:
    """Return the limit to ask for after a lack of memory at `limit_mib`: a fifth more, and at least 256 MiB."""
    return limit_mib + max(_LEAST_MORE_MIB, -(-limit_mib * _MORE_PERCENT // 100))


def recommended(peak_mib: int) -> int:
    """Return the limit to ask for where `peak_mib` was the most that was needed: 5 % more, up to the next 64 MiB."""
    wanted = -(-peak_mib * (100 + _MARGIN_PERCENT) // 100)
    return -(-wanted // _STEP_MIB) * _STEP_MIB


def use_of(device: str, rows: Sequence[Footprint], contexts_mib: int, most_mib: int) -> MeasuredUse | None:
    """Return what follows from the footprints of one key on a model of device, the latest first; None from none.

    They count as far as they have the framework and version of the latest of which these are known. So does a lack of
    memory of which they are not: it came before the framework was seen. `contexts_mib`: see Footprint.needed_mib.
    The largest of the latest successful runs, and 5 %, up to the next 64 MiB; after a lack of memory not less than what
    was then to be asked for, until as many runs have succeeded since. `most_mib`: the largest limit that a device can
    give: what is added to the figures asks for no more than that.
    """
    kind = kind_of(rows)
    rows = [
        row
        for row in rows
        if (row.framework, row.version) == kind or (row.framework is None and row.lacked_mib is not None)
    ]
    succeeded = [row for row in rows if row.lacked_mib is None][:LATEST_RUNS]
    if not rows:
        return None
    since = succeeded[-1].ended if len(succeeded) == LATEST_RUNS else 0.0
    lacked = max((row.lacked_mib for row in rows if row.lacked_mib is not None and row.ended >= since), default=None)
    peak = max((row.needed_mib(contexts_mib) for row in succeeded), default=0)
    ask = None
    if len(succeeded) >= ENOUGH_RUNS:
        wanted = max(recommended(peak), 0 if lacked is None else enlarged(lacked))
        ask = min(wanted, max(peak, most_mib))
    return MeasuredUse(
        runs=len(succeeded),
        peak_mib=peak,
        ask_mib=ask,
        lacked_mib=lacked,
        framework=named(*kind),
        device=device,
    )


def kind_of(rows: Iterable[Footprint]) -> tuple[str | None, str | None]:
    """Return the framework and version of the first of the footprints that has one, None and None if none has."""
    return next(((row.framework, row.version) for row in rows if row.framework is not None), (None, None))


def context_of(
    device: str, contexts: Iterable[Context], framework: str | None, version: str | None, usual_mib: int
) -> MeasuredContext | None:
    """Return how much the context of a process takes on a model of device, None where that is not known.

    The largest of the latest runs with the same framework and version counts, else with the same framework. Of what
    was never measured it is only known that it may take as much as any other framework: never less than `usual_mib`.
    """
    kinds: dict[tuple[str, str, str], list[Context]] = {}
    for one in sorted(contexts, key=lambda one: -one.ended):
        kinds.setdefault((one.framework, one.version, one.driver), []).append(one)
    known = {kind: _largest(device, some[:LATEST_RUNS]) for kind, some in kinds.items() if len(some) >= ENOUGH_RUNS}
    alike = [found for kind, found in known.items() if kind[:2] == (framework, version or "")]
    alike = alike or [found for kind, found in known.items() if kind[0] == framework]
    others = [found for found in known.values() if found.mib > usual_mib]
    return max(alike or others, key=lambda found: found.mib, default=None)


def context_elsewhere(device: str, usual_mib: int) -> MeasuredContext | None:
    """Return how much a context takes on a model of device on which none was measured here, None if that is not known.

    PyTorch, JAX and CuPy took 518 to 611 MiB on an H200 (docs/gpu-verification.md), and its processor is that of an
    H100: 5 % more than that, up to the next 64 MiB.
    """
    if not _HOPPER.search(device) or usual_mib >= _ON_HOPPER.mib:
        return None
    return _ON_HOPPER


def _largest(device: str, some: Sequence[Context]) -> MeasuredContext:
    one = max(some, key=lambda each: each.mib)
    name = named(one.framework, one.version) or ""
    return MeasuredContext(mib=one.mib, runs=len(some), framework=name, device=device, driver=one.driver)


def named(framework: str | None, version: str | None) -> str | None:
    """Return a framework with its version, for people."""
    return None if framework is None else f"{framework} {version or ''}".strip()
