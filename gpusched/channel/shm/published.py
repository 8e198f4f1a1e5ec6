"""A version of the weights in the two forms in which it leaves the learner: a segment for this host, or frames."""

import functools
from collections.abc import Callable, Sequence
from typing import Self

from gpusched.channel.framing import split
from gpusched.channel.messages import ArraySpec, WeightsHeader, encode_header
from gpusched.channel.shm.segment import WeightsSegment
from gpusched.channel.transport import Part
from gpusched.channel.values import Array

__all__ = ["Published"]

FramesOf = Callable[[Sequence[Array]], list[Part]]


class Published:
    """Weights that do not change as long as they are the newest, or an actor uses them."""

    def __init__(
        self,
        version: int,
        specs: tuple[ArraySpec, ...],
        segment: WeightsSegment | None,
        frames_of: FramesOf,
        frames: list[Part] | None = None,
    ) -> None:
        self.version = version
        self.specs = specs
        self.segment = segment
        self._frames_of = frames_of
        self._frames = frames

    @classmethod
    def of(
        cls,
        specs: tuple[ArraySpec, ...],
        arrays: Sequence[Array],
        segment: WeightsSegment | None,
        frames_of: FramesOf,
    ) -> Self:
        """Return them as they lie in `segment`; without one they are copied into frames."""
        return cls(0, specs, segment, frames_of, frames_of(arrays) if segment is None else None)

    def as_version(self, version: int) -> Self:
        """Return the same weights under this version."""
        return type(self)(version, self.specs, self.segment, self._frames_of, self._frames)

    def header(self) -> WeightsHeader:
        """Return the header before the frames."""
        return WeightsHeader(self.version, self.specs)

    @functools.cached_property
    def offer(self) -> bytes | None:
        """What names the segment to an actor on this host, the same for all; None without one."""
        if self.segment is None:
            return None
        return encode_header(WeightsHeader(self.version, self.specs, self.segment.segment))

    def frames(self) -> list[Part]:
        """Return the arrays of the newest weights as frames, made when the first actor needs them; all share them."""
        if self._frames is None:
            self._frames = [] if self.segment is None else self._frames_of(split(self.specs, self.segment.block))
        return self._frames
