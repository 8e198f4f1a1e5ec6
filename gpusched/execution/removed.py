"""What is left of removed jobs, until it is deleted; see daemon.removal."""

import os
from typing import Final

from gpusched.linux.files import remove_tree
from gpusched.settings import Settings

__all__ = ["OURS", "REMOVED", "RESULTS", "delete_removed"]

REMOVED: Final = "removed"
RESULTS: Final = "results"
"""Directories of the state directory: for what is to be deleted, and for results that are kept of removed jobs."""

OURS: Final = frozenset(
    (
        *("spec.json", "status.json", "events.jsonl", "orders.jsonl", "guard.lock", "lease", "environ", "logs"),
        *("ready", "tmp", "keys", "invitation.json", "joined.json", "frame.txt", "watched"),
    )
)
"""What gpusched itself has in a job's directory; all else is the job's results, progress.jsonl among them."""


def delete_removed(settings: Settings) -> None:
    """Delete what was moved away of jobs that are no more, as far as that is allowed."""
    away = settings.state_dir / REMOVED
    try:
        names = os.listdir(away)  # noqa: PTH208 (names alone)
    except OSError:
        return
    for name in names:
        remove_tree(away / name)
