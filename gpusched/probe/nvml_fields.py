"""The fields of a device that one call of NVML gives each, and how a call is made that may not be there.

Facts: NVML API reference (nvml.h); constants by number so that reading them needs no library.
"""

from collections.abc import Callable
from typing import Any, Final

from gpusched.model.device import ComputeMode

__all__ = ["FIELDS", "Ask", "asked"]

Ask = Callable[..., Any]
"""Makes the call of that name with the arguments after it; returns its answer, or None. Raises nothing."""

_COMPUTE_MODES: Final[dict[int, ComputeMode]] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
_UNKNOWN_PERFORMANCE: Final = 32

# field, call, its arguments after the handle, what to make of the answer; the most wanted first, because what was read
# before a call that never returns is all there is. ECC: uncorrected (1), volatile (0), as nvidia-smi shows.
FIELDS: Final[tuple[tuple[str, str, tuple[int, ...], Callable[[Any], object]], ...]] = (
    ("compute_mode", "nvmlDeviceGetComputeMode", (), _COMPUTE_MODES.get),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", (), bool),
    ("utilization_percent", "nvmlDeviceGetUtilizationRates", (), lambda rates: int(rates.gpu)),
    ("temperature_c", "nvmlDeviceGetTemperature", (0,), int),
    ("power_w", "nvmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts // 1000),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), lambda milliwatts: milliwatts // 1000),
    ("fan_percent", "nvmlDeviceGetFanSpeed", (), int),
    (
        "performance_state",
        "nvmlDeviceGetPerformanceState",
        (),
        lambda state: None if state == _UNKNOWN_PERFORMANCE else state,
    ),
    ("ecc_errors", "nvmlDeviceGetTotalEccErrors", (1, 0), int),
)


def asked(nvml: Any, call: str, *arguments: Any, note: Callable[[int], None] | None = None) -> Any:
    """Return the answer of a call, or None: it is not there, or it failed, with a code that `note` gets."""
    function = getattr(nvml, call, None)
    if function is None:
        return None  # this version of the binding lacks it
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if note is not None:
            note(error.value)
    except ValueError:
        pass  # a text that is no UTF-8
    return None
