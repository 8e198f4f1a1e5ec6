"""What the nodes of a group are handed of the host that submitted it."""

from collections.abc import Mapping
from typing import Final

__all__ = ["submitters"]

_OF_THIS_HOST: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "TMPDIR", "XDG_RUNTIME_DIR")
"""Variables that are this process's or this host's, and wrong on a node."""


def submitters(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a replica without what made it one: nearly that in which it was submitted."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _OF_THIS_HOST and not name.startswith(("GPUSCHED_", "TF_NUM_"))
    }
