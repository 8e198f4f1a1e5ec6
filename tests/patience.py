"""How long a test waits for what has to come: a bound that only a hang meets, also on a slow host that is busy."""

from typing import Final

__all__ = ["PATIENCE_S"]

PATIENCE_S: Final = 240.0
