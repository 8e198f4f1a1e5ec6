"""The fork servers of this daemon: one for all jobs, and one for each array whose members preload the same modules."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusched.daemon.fork_client import ForkServerClient, common_server, server_of_array
from gpusched.execution.directory import JobDirectory
from gpusched.storage.job import Job
from gpusched.zygote.preload import first_on_path, preload_of

__all__ = ["ForkServers"]


class ForkServers:
    """Those of a daemon with the environment `environ`; what they fork may open `limit` files.

    There are none where `environ` is None.
    """

    def __init__(self, environ: Mapping[str, str] | None, limit: tuple[int, int]) -> None:
        self._limit = limit
        self._common = None if environ is None else ForkServerClient(common_server(environ), limit)
        self._of_arrays: dict[str, ForkServerClient | None] = {}
        self._reported: dict[str, str | None] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the one for all jobs can be asked for guards."""
        return self._common is not None and self._common.is_ready

    def __iter__(self) -> Iterator[ForkServerClient]:
        yield from filter(None, (self._common, *self._of_arrays.values()))

    def for_job(self, job: Job) -> Iterator[ForkServerClient]:
        """Yield those that may fork the guard of a prepared job, the best first. Raises HostFault."""
        if job.array is not None and job.array not in self._of_arrays:
            self._of_arrays[job.array] = self._of_array(job, job.array)
        yield from filter(None, (self._of_arrays.get(job.array or ""), self._common))

    def doing(self, array: str) -> str | None:
        """Return what the server of an array imports just now, None where there is none that does."""
        own = self._of_arrays.get(array)
        return None if own is None else own.doing

    def troubles(self) -> list[tuple[str, str | None]]:
        """Return why the members of arrays import for themselves, where that is new; None: they need not any more."""
        now = {array: own.trouble for array, own in self._of_arrays.items() if own is not None}
        new = [(array, why) for array, why in now.items() if why != self._reported.get(array)]
        self._reported = now
        return new

    def forget(self, array: str) -> None:
        """End the server of an array that is over."""
        own = self._of_arrays.pop(array, None)
        if own is not None:
            own.end()

    def _of_array(self, job: Job, array: str) -> ForkServerClient | None:
        if self._common is None or job.submission is None or not job.submission.workload.preload:
            return None
        directory, environ = JobDirectory(Path(job.run_dir)), job.submission.environ
        found = preload_of(directory.read_spec(), environ)
        if found is None:
            return None
        preload, command = found
        log = JobDirectory(directory.path.with_name(array)).log("zygote")
        return ForkServerClient(
            server_of_array(array, preload, first_on_path(command, preload.cwd), environ, log), self._limit
        )
