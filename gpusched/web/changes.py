"""What changed on the page between two moments: most of the jobs stay as they are, and are not sent again."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

__all__ = ["Change", "Changes", "Moment"]

_NEVER = msgspec.Raw(b"null")


class Moment(NamedTuple):
    """One moment by its `number`, as JSON: `whole`, and what `changed` since the number before."""

    number: int
    whole: bytes
    changed: bytes


class Change(NamedTuple):
    """What has changed since the moment before that of this `number`, as JSON."""

    number: int
    changed: bytes


class Changes:
    """Makes moments of views. A view is an error, or has "jobs", each with an "id"; all else of it is small."""

    def __init__(self) -> None:
        self._number = 0
        self._around = b""
        self._jobs: dict[str, msgspec.Raw] = {}

    def of(self, view: Mapping[str, object], jobs: list[dict[str, object]]) -> Moment | None:
        """Return the next moment, None if nothing changed. Its parts have the "number", and `changed` what is new.

        `jobs` has jobs that are new or changed; `order` the ids of all, where that has changed; the other entries of
        the view are all there, or none.
        """
        encode = msgspec.json.encode
        found = {str(job["id"]): msgspec.Raw(encode(job)) for job in jobs}
        changed = [job for name, job in found.items() if bytes(self._jobs.get(name, _NEVER)) != bytes(job)]
        around = encode(view)
        reordered = list(found) != list(self._jobs)
        if self._number and not changed and not reordered and around == self._around:
            return None
        self._number += 1
        part = {"number": self._number, "jobs": changed}
        if reordered:
            part["order"] = list(found)
        if around != self._around:
            part |= view
        self._around, self._jobs = around, found
        whole = {"number": self._number, "jobs": list(found.values()), "order": list(found), **view}
        return Moment(self._number, encode(whole), encode(part))
