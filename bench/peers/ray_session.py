"""A Ray of this host alone, from its start to its end. Its modules run in .venv-ray: they import NumPy and no more."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Final

from gpusched.linux.processes import become_subreaper, kill_descendants

__all__ = ["session"]

_END_PATIENCE_S: Final = 20.0
_STORE_BYTES: Final = 1 << 30


@contextlib.contextmanager
def session(actors: int) -> Iterator[Any]:
    """Give the module ray, initialised with room for so many actors; no process and no file of it is left after that.

    No dashboard, no usage reports and no copies of the actors' logs: that is less work for it than by default.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    become_subreaper()  # of what Ray starts, whatever becomes of its own parents
    with tempfile.TemporaryDirectory(prefix="gs-ray-") as home:
        try:
            ray.init(
                num_cpus=actors,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                object_store_memory=_STORE_BYTES,
                _temp_dir=home,
            )
            yield ray
        finally:
            ray.shutdown()
            kill_descendants(_END_PATIENCE_S)
