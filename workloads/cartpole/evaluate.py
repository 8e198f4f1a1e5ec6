"""How well a network plays without chance: `python -m workloads.cartpole.evaluate --weights FILE --games 100`.

Three sets of games, none of which anybody trains on: by the first a run chooses its weights, the second decides whether
it is solved, and the third tells in the end what these weights are worth: it has had no part in any choice.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workloads.cartpole.games import LONGEST, Games
from workloads.cartpole.network import Policy
from workloads.cartpole.record import Counts
from workloads.common.checkpoint import UnusableWeights, read_checkpoint

__all__ = ["CHOOSES", "GAMES", "JUDGES", "TELLS", "describe", "greedy_returns", "main", "surely"]

GAMES: Final = 100
CHOOSES: Final = 10_000
JUDGES: Final = 20_000
TELLS: Final = 30_000
"""Seeds of the three sets of games."""


def greedy_returns(weights: Mapping[str, NDArray[np.float32]], games: int, seed: int) -> NDArray[np.int64]:
    """Play `games` whole games, each push the one that is worth most; return their returns [games]."""
    policy, played = Policy(weights), Games(games, np.random.default_rng(seed))
    result = np.zeros(games, np.int64)
    for _ in range(LONGEST):
        step = played.step(policy.actions(played.observations))
        first = step.ended & (result == 0)
        result[first] = step.returns[first]
        if result.all():
            break
    return result


def surely(returns: NDArray[np.int64]) -> float:
    """Return their mean less two standard errors: what other games with the same weights will hardly fall short of."""
    return float(returns.mean() - 2 * returns.std() / np.sqrt(returns.size))


def describe(returns: NDArray[np.int64]) -> str:
    """Say mean and spread of returns in one line."""
    return (
        f"greedy play: mean return {returns.mean():.2f} over {returns.size} games "
        f"(deviation {returns.std():.2f}, least {returns.min()}, most {returns.max()})"
    )


def main() -> None:
    """Read the command line, play, print one line."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.cartpole.evaluate", description="greedy play of saved weights"
    )
    parser.add_argument("--weights", type=Path, required=True, help="a weights.npz that a learner saved")
    parser.add_argument("--games", type=int, default=GAMES)
    parser.add_argument("--seed", type=int, default=TELLS, help="what the starts of the games are drawn from")
    given = parser.parse_args()
    if given.games < 1:
        parser.error("--games: at least 1")
    if given.seed < 0:
        parser.error("--seed: at least 0")
    try:
        arrays, _ = read_checkpoint(given.weights, Counts)
        print(describe(greedy_returns(arrays, given.games, given.seed)))
    except UnusableWeights as error:
        parser.error(str(error))
    except KeyError as error:
        parser.error(f"{given.weights} holds no weights of this network: {error.args[0]} is missing")


if __name__ == "__main__":
    main()
