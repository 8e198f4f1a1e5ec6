"""The messages about what jobs used, and what was measured by that; of the same kind as those in messages.py."""

from typing import Annotated, Final

import msgspec

from gpusched.model.footprint import Measurements
from gpusched.model.usage import RoleUsage

__all__ = ["MOST_USAGES", "FindMeasured", "JobId", "JobIds", "ListUsage", "Measured", "Usages"]

MOST_USAGES: Final = 20_000
"""How many rows one answer holds: some 10 MiB."""

JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
JobIds = Annotated[tuple[JobId, ...], msgspec.Meta(max_length=10_000)]
Names = Annotated[tuple[Annotated[str, msgspec.Meta(max_length=4096)], ...], msgspec.Meta(max_length=1000)]


class ListUsage(msgspec.Struct, frozen=True, kw_only=True, tag="list-usage"):
    """What did the jobs `ids` use, or with none named those that run and those that ended `since`?

    An array stands for its members. Answered with Usages: MOST_USAGES of the latest.
    """

    ids: JobIds = ()
    since: float = 0.0


class FindMeasured(msgspec.Struct, frozen=True, kw_only=True, tag="find-measured"):
    """What was measured of the roles with these keys, and of contexts, on these models of devices?

    With this version of the driver; None: with any. Answered with Measured.
    """

    keys: Names
    devices: Names
    driver: Annotated[str, msgspec.Meta(max_length=200)] | None = None


class Usages(msgspec.Struct, frozen=True, kw_only=True, tag="usages"):
    """What jobs used, a row for each of their roles, the latest end first."""

    rows: tuple[RoleUsage, ...]


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """What was measured, as far as anything was."""

    found: Measurements
