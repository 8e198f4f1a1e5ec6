"""The options of the workload: `gpusched launch` makes a command-line option of each field, and checks it.

Learner and actors read them with `runtime.settings(Settings)`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Settings"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one run of the workload."""

    updates: Annotated[int, Meta(description="end after this number of updates of the model", ge=1)] = 6000
    arms: Annotated[int, Meta(description="how many arms the bandit has", ge=2, le=1000)] = 20
