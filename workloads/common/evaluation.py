"""What a run's greedy games gave, as a file. Knows no game."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = ["save_evaluation"]


def save_evaluation(
    path: Path,
    results: NDArray[np.int64],
    *,
    steps: int,
    seconds: float,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write as JSON what the games gave, `results` [games], after how much training, and `more`. Raises OSError."""
    evaluation = {
        "games": results.size,
        "mean": float(results.mean()),
        "deviation": float(results.std()),
        "least": int(results.min()),
        "most": int(results.max()),
        "results": results.tolist(),
        "steps": steps,
        "seconds": seconds,
        **more,
    }
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(msgspec.json.encode(evaluation))
    temporary.replace(path)
