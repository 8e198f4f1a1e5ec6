"""The options of a toy workload."""

from typing import Annotated, Literal

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A toy's options."""

    colour: Annotated[Literal["red", "green"], msgspec.Meta(description="what it is painted with")] = "red"
    legs: Annotated[int, msgspec.Meta(description="how many legs it has", ge=1)] = 4
    loud: Annotated[bool, msgspec.Meta(description="whether it squeaks")] = False
