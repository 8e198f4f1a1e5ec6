"""joblib on GPUs: `import gpusched.joblib`, then `with parallel_config("gpusched", n_jobs=8, fraction=0.25): ...`."""

from collections.abc import Callable
from typing import Any, Final

from joblib import register_parallel_backend
from joblib.parallel import ParallelBackendBase, SequentialBackend

from gpusched.api.executor import Executor, JobFuture

__all__ = ["Backend"]

_AHEAD: Final = 64
"""How many calls joblib hands over at a time where n_jobs is -1: all that have a place run."""


class Backend(ParallelBackendBase):  # type: ignore[misc]
    """Runs each batch of joblib's as a job of the queue. The arguments are those of gpusched.Executor."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, nesting_level: int | None = None, **given: Any) -> None:
        super().__init__(nesting_level=nesting_level)
        self._given = given
        self._executor: Executor | None = None
        self._at_most: int | None = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many calls may run at the same time."""
        return n_jobs if n_jobs is not None and n_jobs > 0 else _AHEAD

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_: Any) -> int:
        """Queue the array that the calls are members of."""
        self.parallel = parallel
        self._at_most = n_jobs if n_jobs is not None and n_jobs > 0 else None
        self._executor = Executor(at_most=self._at_most, **self._given)
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> JobFuture[Any]:
        """Have a batch run."""
        future = self._running().submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: JobFuture[Any]) -> Any:
        """Return what a batch returned, or raise what it raised."""
        return out.result()

    def terminate(self) -> None:
        """Take no more."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: FBT001, FBT002 (its signature)
        """Cancel what has not begun."""
        self._running().shutdown(wait=False, cancel_futures=True)
        self._executor = Executor(at_most=self._at_most, **self._given) if ensure_ready else None

    def get_nested_backend(self) -> tuple[Any, None]:
        """Return what runs Parallel within a call: that one process."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def _running(self) -> Executor:
        if self._executor is None:
            raise RuntimeError("joblib has not configured this backend")
        return self._executor


register_parallel_backend("gpusched", Backend)
