"""A framework with a limit of its own kind: what it takes to add one."""

from __future__ import annotations

import sys

from gpusched.frameworks.limit import Limit
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework


def _limit(limit: Limit) -> None:
    sys.modules["toyframe"].most_mib = limit.mib  # type: ignore[attr-defined]


FRAMEWORK = Framework(
    name="toyframe",
    title="Toyframe",
    limiter=_limit,
    environment=lambda limit, _: {"TOYFRAME_FRACTION": f"{limit.ratio:.2f}"},
    threads=("TOYFRAME_THREADS",),
    not_inherited=("TOYFRAME_UNLIMITED",),
    out_of_memory=rb"ToyframeFull: \d+ blocks",
    obstacle_to_fork=lambda: "toyframe counts its processes",
    when_started=lambda call: call(),
    peaks=lambda: Peaks(1, None),
    distributions=("toyframe",),
    compared=("msgspec",),
    install_hint="build toyframe",
)
