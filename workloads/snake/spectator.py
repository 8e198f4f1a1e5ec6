"""One game for people to watch: actors play faster than anybody can see, so it is recorded and shown slowly."""

import threading
import time
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from gpusched.channel import Progress
from workloads.snake.drawing import as_text
from workloads.snake.rules import Frames

__all__ = ["Spectator"]


class Spectator:
    """Shows whole games, by default ten frames a second, while somebody watches; costs nothing otherwise."""

    def __init__(self, progress: Progress, seconds_a_frame: float = 0.1) -> None:
        self._seconds_a_frame = seconds_a_frame
        self._progress = progress
        self._to_show: SimpleQueue[Frames] = SimpleQueue()
        self._recording = False
        threading.Thread(target=self._show, name="spectator", daemon=True).start()

    @property
    def waiting(self) -> int:
        """How many frames are still to be shown."""
        return self._to_show.qsize()

    def see(self, frames: Frames, ended: NDArray[np.bool_]) -> None:
        """Take the next steps of one game: `frames` [steps, 10, 10], and whether it `ended` with each step [steps]."""
        if not self._progress.watched:
            self._recording = False
            return
        for frame, over in zip(frames, ended, strict=True):
            if self._recording:
                self._to_show.put(frame.copy())
            if over:
                self._recording = self._to_show.empty()

    def _show(self) -> None:
        while True:
            self._progress.frame(as_text(self._to_show.get()))
            time.sleep(self._seconds_a_frame)
