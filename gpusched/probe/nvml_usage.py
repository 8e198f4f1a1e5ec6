"""How much the processes on a device use it, by NVML's samples of them since the reading before.

Source: nvml.h, nvmlDeviceGetProcessUtilization (Maxwell and later, not with MIG). It returns a sample for each process
that had "some non-zero utilization during the last sample period", so one that does nothing has none; NOT_FOUND: there
are none that are newer than the time stamp asked for. With the time stamp 0 a sample is the mean of all that the driver
still keeps, which may be long past, so the first reading of a probe only notes where the second one begins. Of a long
time between two readings the driver keeps only the end. Time stamps are the CPU's, in microseconds; each process has
its own (NVIDIA/go-nvml issue 51). Seen in the wild: a hundred samples on a device with few processes, and shares far
above 100 % (Syllo/nvtop issue 110).
"""

import collections
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from gpusched.model.device import DeviceProcess
from gpusched.probe.nvml_fields import Ask

__all__ = ["Sample", "latest", "not_ahead", "samples_since", "with_use"]

_SUCCESS: Final = 0  # without samples; the binding raises it, as it expects only that there is no room
_NOT_FOUND: Final = 6
_ALL: Final = 100
_CLOCK_SLACK_US: Final = 1_000_000


class Sample(NamedTuple):
    """The use by one process: when, by the CPU's clock, and the share of the time in which its kernels ran, in %."""

    pid: int
    time_us: int
    sm_percent: int


def samples_since(handle: object, ask: Ask, since_us: int) -> tuple[Sample, ...] | None:
    """Return the samples that are newer than `since_us`; None if the driver does not report any, or failed."""
    none_found: dict[int, object] = {_SUCCESS: (), _NOT_FOUND: ()}
    found = ask("nvmlDeviceGetProcessUtilization", handle, since_us, answers=none_found)
    if found is None:
        return None
    samples = (Sample(int(one.pid), int(one.timeStamp), int(one.smUtil)) for one in found)
    return tuple(one for one in samples if one.time_us > since_us)


def latest(samples: Sequence[Sample], seen_us: int | None) -> int:
    """Return the latest time stamp of the samples and of what was seen before, 0 if there is none."""
    return max([seen_us or 0, *(one.time_us for one in samples if one.sm_percent <= _ALL)])


def not_ahead(seen_us: int | None, now_us: int) -> int | None:
    """Return the time stamp that was seen last; None if the clock was set back behind it: no sample is newer then."""
    return None if seen_us is None or seen_us > now_us + _CLOCK_SLACK_US else seen_us


def with_use(
    processes: Sequence[DeviceProcess], samples: Sequence[Sample], device_percent: int | None, *, mps: bool
) -> list[DeviceProcess]:
    """Return the processes with `sm_percent`: the mean of their samples, rounded up, so that 0 is none at all.

    A process without a sample has 0 if more than that speaks for it: others in the list were active, or none was and
    the device as a whole is idle, too (`device_percent`, which covers a second at most). It has None if there is any
    doubt: samples of processes that are not in the list, impossible ones, a busy device on which none was active, or
    clients of MPS on an active device, as their work may be counted as that of their server.
    """
    shares: dict[int, list[int]] = collections.defaultdict(list)
    for sample in samples:
        shares[sample.pid].append(sample.sm_percent)
    listed = {process.pid for process in processes}
    active = {pid for pid, found in shares.items() if max(found)}
    clear = active <= listed and all(sample.sm_percent <= _ALL for sample in samples)
    idle = 0 if clear and (not mps if active else device_percent == 0) else None
    return [msgspec.structs.replace(each, sm_percent=_mean(shares.get(each.pid), idle)) for each in processes]


def _mean(found: list[int] | None, otherwise: int | None) -> int | None:
    if found is None:
        return otherwise
    return None if max(found) > _ALL else -(-sum(found) // len(found))
