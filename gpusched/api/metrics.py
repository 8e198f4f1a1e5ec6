"""The status as numbers for Prometheus, and as the files by which DCGM's exporter knows whose a GPU is."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from gpusched import __version__
from gpusched.api.host import StatusReader
from gpusched.errors import HostFault
from gpusched.settings import queue_settings

__all__ = ["Metrics", "metrics", "metrics_reader"]

_FOR_ALL: int = 0o644


class Metrics(NamedTuple):
    """One moment of this host: `text` in Prometheus' format 0.0.4, and which jobs each GPU has, by its index."""

    text: str
    jobs_by_gpu: Mapping[str, str]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the text into a file that all may read, whole or not at all. Raises HostFault."""
        _write(Path(path), self.text)

    def write_mapping(self, directory: str | os.PathLike[str]) -> None:
        """Write a file for each GPU into a directory, with a job in each line. Raises HostFault.

        A file there of a GPU that is there no more is made empty.
        """
        place = Path(directory)
        try:
            gone = [one.name for one in place.iterdir() if one.name.isdecimal() and one.name not in self.jobs_by_gpu]
        except OSError:
            gone = []
        for index, jobs in (*self.jobs_by_gpu.items(), *((name, "") for name in gone)):
            _write(place / index, jobs)


def metrics() -> Metrics:
    """Return this moment of the host. How busy each replica keeps its GPU is known from a second reading on only.

    Raises UsageError for wrong settings, and HostFault.
    """
    return metrics_reader()()


def metrics_reader() -> Callable[[], Metrics]:
    """Return what reads the host again and again, and keeps the driver's library open meanwhile. Raises as metrics."""
    from gpusched.metrics.dcgm import jobs_by_gpu
    from gpusched.metrics.families import families
    from gpusched.metrics.text import text_of

    read, headroom = StatusReader(), queue_settings(os.environ).headroom

    def moment() -> Metrics:
        seen = read()
        return Metrics(text_of(families(seen, __version__, headroom)), jobs_by_gpu(seen))

    return moment


def _write(path: Path, text: str) -> None:
    from gpusched.linux.files import replace_file

    try:
        replace_file(path, text.encode(), synced=False, mode=_FOR_ALL)
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make its directory, and let this user write there") from None
