"""How busy the devices were in the last hour: the picture beside each."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from gpusched.model.device import Device

__all__ = ["EVERY_S", "History"]

EVERY_S: Final = 30
_POINTS: Final = 120


class History:
    """Means of how busy each device was, one for each half minute, for an hour. The clock is one that is never set."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, dict[str, tuple[int, int]]] = {}

    def add(self, devices: Sequence[Device]) -> None:
        """Take in what the devices show now, in percent."""
        number = int(self._clock() // EVERY_S)
        busy = self._seen.setdefault(number, {})
        for device in devices:
            if device.utilization_percent is not None:
                total, count = busy.get(device.uuid, (0, 0))
                busy[device.uuid] = (total + device.utilization_percent, count + 1)
        for old in [one for one in self._seen if one <= number - _POINTS]:
            del self._seen[old]

    def view(self) -> dict[str, object]:
        """Return by uuid a mean in percent for each half minute, None where nothing was seen, the latest last.

        `age_s`: how long ago the latest half minute began.
        """
        if not self._seen:
            return {"every_s": EVERY_S, "age_s": 0, "busy": {}}
        numbers = range(min(self._seen), max(self._seen) + 1)
        uuids = {uuid for busy in self._seen.values() for uuid in busy}
        columns = {uuid: [_mean(self._seen.get(number, {}).get(uuid)) for number in numbers] for uuid in sorted(uuids)}
        return {"every_s": EVERY_S, "age_s": round(self._clock() - EVERY_S * numbers[-1], 1), "busy": columns}


def _mean(seen: tuple[int, int] | None) -> int | None:
    return None if seen is None else round(seen[0] / seen[1])
