"""What is left of a job at its end: the supervisor kills it, and the guard above does so again.

The guard imports this, so it needs nothing but what the interpreter brings.
"""

import time

from gpusched.execution.relatives import outliving
from gpusched.linux.processes import kill_descendants

__all__ = ["kill_leftovers"]

_PATIENCE_S = 5.0
_PAUSE_S = 1.0


def kill_leftovers(path: str) -> bool:
    """Kill what is below this process of the job in the directory `path`; return whether nothing is left of it."""
    try:
        return kill_descendants(_PATIENCE_S, outliving(path))
    except OSError:  # such as a host that has no descriptor left: /proc cannot be read
        time.sleep(_PAUSE_S)
        return False
