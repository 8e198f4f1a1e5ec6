"""The fields of a device that one call of NVML gives each, and how a call is made that may not be there.

Facts: NVML API reference (nvml.h); constants by number so that reading them needs no library.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpusched.model.device import HARDWARE_SLOWDOWN, HEAT, POWER_BRAKE, POWER_LIMIT, ComputeMode

__all__ = ["FIELDS", "NO_ANSWERS", "Ask", "asked", "slowed_by"]

Ask = Callable[..., Any]
"""Makes the call of that name with the arguments after it; returns its answer, or None. Raises nothing.

Its `answers` are what to return for certain codes of errors.
"""
NO_ANSWERS: Final[Mapping[int, object]] = {}

_COMPUTE_MODES: Final[dict[int, ComputeMode]] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
_UNKNOWN_PERFORMANCE: Final = 32
_CLOCK_REASONS: Final = (
    (0x004, POWER_LIMIT),  # SwPowerCap
    (0x020, HEAT),  # SwThermalSlowdown: of the GPU or of its memory
    (0x040, HEAT),  # HwThermalSlowdown: clocks at a half or less
    (0x080, POWER_BRAKE),  # HwPowerBrakeSlowdown: the host's power supply asks for it
    (0x008, HARDWARE_SLOWDOWN),  # HwSlowdown: clocks at a half or less, by heat, power brake or too much power
    (0x002, "application clocks"),  # ApplicationsClocksSetting: somebody has set them
    (0x100, "display clocks"),  # DisplayClockSetting
    (0x010, "sync boost"),  # SyncBoost: as slow as the slowest of its group
    (0x200, "board limit"),  # BoardLimit
    (0x400, "reliability limit"),  # Reliability
)
_NO_SLOWDOWN: Final = 0x001  # GpuIdle


def slowed_by(mask: int) -> tuple[str, ...]:
    """Return the names of the clock reasons in a mask, each once; "reason 0x800" for one that is not known yet.

    Source: nvml.h, nvmlClocksEventReasons, which were nvmlClocksThrottleReasons before driver 535, by the same numbers.
    """
    names = dict.fromkeys(name for bit, name in _CLOCK_REASONS if mask & bit)
    rest = mask & ~sum(bit for bit, _ in _CLOCK_REASONS) & ~_NO_SLOWDOWN
    return (*names, *(f"reason {1 << at:#x}" for at in range(rest.bit_length()) if rest >> at & 1))


# field, call, its arguments after the handle, what to make of the answer; the most wanted first, because what was read
# before a call that never returns is all there is. Of a field with two lines the first answer counts, for a call whose
# name has changed. ECC: uncorrected (1), volatile (0), as nvidia-smi shows.
FIELDS: Final[tuple[tuple[str, str, tuple[int, ...], Callable[[Any], object]], ...]] = (
    ("compute_mode", "nvmlDeviceGetComputeMode", (), _COMPUTE_MODES.get),
    ("persistence_mode", "nvmlDeviceGetPersistenceMode", (), bool),
    ("utilization_percent", "nvmlDeviceGetUtilizationRates", (), lambda rates: int(rates.gpu)),
    ("temperature_c", "nvmlDeviceGetTemperature", (0,), int),
    ("power_w", "nvmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts // 1000),
    ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), lambda milliwatts: milliwatts // 1000),
    ("slowed_by", "nvmlDeviceGetCurrentClocksEventReasons", (), slowed_by),
    ("slowed_by", "nvmlDeviceGetCurrentClocksThrottleReasons", (), slowed_by),
    ("energy_j", "nvmlDeviceGetTotalEnergyConsumption", (), lambda millijoules: millijoules // 1000),
    ("fan_percent", "nvmlDeviceGetFanSpeed", (), int),
    (
        "performance_state",
        "nvmlDeviceGetPerformanceState",
        (),
        lambda state: None if state == _UNKNOWN_PERFORMANCE else state,
    ),
    ("ecc_errors", "nvmlDeviceGetTotalEccErrors", (1, 0), int),
)


def asked(
    nvml: Any,
    call: str,
    *arguments: Any,
    note: Callable[[int], None] | None = None,
    answers: Mapping[int, object] = NO_ANSWERS,
) -> Any:
    """Return the answer of a call, or None: it is not there, or it failed, with a code that `note` gets.

    `answers` are what certain codes mean, which are no failures then.
    """
    function = getattr(nvml, call, None)
    if function is None:
        return None  # this version of the binding lacks it
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        if error.value in answers:
            return answers[error.value]
        if note is not None:
            note(error.value)
    except ValueError:
        pass  # a text that is no UTF-8
    return None
