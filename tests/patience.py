"""How long a test waits for what has to come: a bound that only a hang meets, also on a slow host that is busy."""

from typing import Final

__all__ = ["DRIVER_PATIENCE_S", "PATIENCE_S"]

PATIENCE_S: Final = 240.0

DRIVER_PATIENCE_S: Final = 100.0
"""How long the tests' processes wait for NVML; a test of a driver that hangs sets a shorter time of its own."""
