"""What a run's greedy games gave, as a file. Knows no game."""

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["save_evaluation"]


def save_evaluation(path: Path, results: NDArray[np.int64], *, steps: int, seconds: float) -> None:
    """Write as JSON what the games gave, `results` [games], and after how much training. Raises OSError."""
    evaluation = {
        "games": results.size,
        "mean": float(results.mean()),
        "deviation": float(results.std()),
        "least": int(results.min()),
        "most": int(results.max()),
        "results": results.tolist(),
        "steps": steps,
        "seconds": seconds,
    }
    path.write_bytes(msgspec.json.encode(evaluation))
