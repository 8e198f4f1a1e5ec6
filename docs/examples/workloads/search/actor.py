"""An actor: tries points around the centre, sends the lowest."""

from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from gpusched import runtime
from gpusched.channel import Actor, LearnerGone


def lowest(
    centre: NDArray[np.float64], width: NDArray[np.float64], random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Try 500 points, and return the best 50 and their heights. Many valleys (Rastrigin's), the lowest at 0."""
    points = random.normal(centre, width, (500, 10))
    heights = (points**2 - 10 * np.cos(2 * np.pi * points) + 10).sum(axis=1)
    best = heights.argsort()[:50]
    return points[best], heights[best]


def main() -> None:
    random = np.random.default_rng(runtime.current_replica().rank)
    with Actor() as actor:
        while True:
            now = actor.weights().arrays
            points, heights = lowest(now["centre"], now["width"], random)
            actor.send({"points": points, "heights": heights})


if __name__ == "__main__":
    with suppress(LearnerGone):
        main()
