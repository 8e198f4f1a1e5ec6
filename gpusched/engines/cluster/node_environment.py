"""What the nodes of a group are handed of the host that submitted it, and what they do not take of it."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpusched.environment import outside_environment
from gpusched.settings import Settings, load_settings, sessionless_runtime_dir

__all__ = ["keep_from_ageing", "settings_of_node", "submitters"]

_OF_THIS_HOST: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TMPDIR", "XDG_RUNTIME_DIR")
"""Variables that are this process's or this host's, and wrong on a node."""


def submitters(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a replica without what made it one: nearly that in which it was submitted."""
    return {
        name: value
        for name, value in outside_environment(environ).items()
        if name not in _OF_THIS_HOST and not name.startswith("GPUSCHED_")
    }


def settings_of_node(environ: Mapping[str, str]) -> Settings:
    """Return the settings on a node. Raises UsageError.

    A runtime directory of XDG is a login session's: a cluster's own processes have none, or that of a session which
    ends before they do, or another host's.
    """
    return load_settings({"GPUSCHED_RUNTIME_DIR": str(sessionless_runtime_dir()), **environ})


def keep_from_ageing(directory: Path) -> None:
    """Hold a lock on `directory` as long as this process lives: what cleans up /tmp leaves it alone (tmpfiles.d(5))."""
    fcntl.flock(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_SH)
