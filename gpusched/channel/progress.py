"""What a workload shows people: numbers as JSON lines, and one frame of a game as text, in the run directory.

It must not know their readers. Nothing here may stop a training: a full disk costs the progress, not the run.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from gpusched import runtime
from gpusched.errors import NotLaunched
from gpusched.linux.regular_files import append_regular

__all__ = ["Progress"]

_log: Final = logging.getLogger(__name__)
_CHECK_S: Final = 1.0
_WATCHED_S: Final = 60.0


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no number")


class Progress:
    """Writes to `run_dir`, by default that of this launch. Outside a launch it writes nothing, so a script runs as is.

    When the run directory cannot be written, that is logged once, and nothing more is written.
    """

    def __init__(self, run_dir: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._encoder = msgspec.json.Encoder(enc_hook=_plain)
        self._watched = False
        self._checked_at = -_CHECK_S
        self._run_dir = run_dir
        if run_dir is None:
            try:
                self._run_dir = runtime.current_replica().run_dir
            except NotLaunched:
                self._run_dir = None

    def report(
        self,
        *,
        step: int | None = None,
        steps_per_s: float | None = None,
        score: float | None = None,
        replicas: Mapping[str, Mapping[str, float]] | None = None,
        note: str | None = None,
        done: float | None = None,
        **numbers: float,
    ) -> None:
        """Append one line to progress.jsonl: `time` in Unix seconds, and what is given. NaN and infinity become null.

        `replicas` holds numbers by replica name. `done`: the part of the work that is done, 0 to 1, by which
        the queue expects the job's end; as good are `step` and, as one of `numbers`, `steps`: how many there will be.
        Raises TypeError for a value that is no number.
        """
        numbers_given = {"step": step, "steps_per_s": steps_per_s, "score": score, "done": done}
        given = {**numbers_given, "replicas": replicas, "note": note}
        line = {"time": self._clock(), **{key: value for key, value in given.items() if value is not None}, **numbers}
        data = self._encoder.encode(line) + b"\n"
        if self._run_dir is not None:
            self._guarded(lambda run_dir: append_regular(run_dir / "progress.jsonl", data))

    def frame(self, text: str) -> None:
        """Replace frame.txt by `text`, whole: a reader sees the old frame or the new one."""
        self._guarded(lambda run_dir: _replace(run_dir / "frame.txt", text))

    @property
    def watched(self) -> bool:
        """Whether a person watches, so that frames are worth drawing.

        The file `watched`, which each view renews: it is of the last minute. It is checked once a second.
        """
        now = time.monotonic()
        if self._run_dir is not None and now - self._checked_at >= _CHECK_S:
            self._checked_at = now
            try:
                renewed = (self._run_dir / "watched").stat(follow_symlinks=False).st_mtime
            except OSError:
                self._watched = False
            else:
                self._watched = abs(time.time() - renewed) < _WATCHED_S
        return self._watched

    def _guarded(self, write: Callable[[Path], None]) -> None:
        if self._run_dir is None:
            return
        try:
            write(self._run_dir)
        except OSError as error:
            _log.warning("no more progress is written: %s: %s", self._run_dir, error.strerror)
            self._run_dir = None


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)  # not fsynced: after a crash of the host this frame has no reader
    temporary.replace(path)
