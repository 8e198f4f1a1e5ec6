"""Find the lowest point of a landscape: one learner and four workers, with multiprocessing's Pipes."""

import multiprocessing as mp
from multiprocessing.connection import Connection, wait

import numpy as np
from numpy.typing import NDArray

WORKERS = 4
ROUNDS = 1000


def lowest(
    centre: NDArray[np.float64], width: NDArray[np.float64], random: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Try 500 points, and return the best 50 and their heights. Many valleys (Rastrigin's), the lowest at 0."""
    points = random.normal(centre, width, (500, 10))
    heights = (points**2 - 10 * np.cos(2 * np.pi * points) + 10).sum(axis=1)
    best = heights.argsort()[:50]
    return points[best], heights[best]


def work(pipe: Connection, rank: int) -> None:
    random = np.random.default_rng(rank)
    while True:
        centre, width = pipe.recv()
        pipe.send(lowest(centre, width, random))


def main() -> None:
    pipes = []
    for rank in range(WORKERS):
        ours, theirs = mp.Pipe()
        mp.Process(target=work, args=(theirs, rank), daemon=True).start()
        pipes.append(ours)
    centre, width = np.full(10, 4.0), np.full(10, 3.0)
    for pipe in pipes:
        pipe.send((centre, width))
    done = 0
    while done < ROUNDS:
        ready = wait(pipes)
        for pipe in [one for one in pipes if one in ready]:
            points, heights = pipe.recv()
            centre = 0.8 * centre + 0.2 * points.mean(axis=0)
            width = 0.8 * width + 0.2 * points.std(axis=0)
            pipe.send((centre, width))
            done += 1
            if done % 100 == 0:
                print(f"round {done}: {heights.min():.3f}")
    np.savez("found.npz", centre=centre)


if __name__ == "__main__":
    main()
