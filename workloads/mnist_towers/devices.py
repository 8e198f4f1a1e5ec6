"""The devices of this process, and who says on which of them a variable is.

`tf.device` takes no function in TensorFlow 2: `RuntimeError: tf.device does not support functions`. What a device
function did for variables, a variable creator does: TensorFlow asks it for each variable that is made.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import numpy as np
import tensorflow as tf

from workloads.mnist_towers.settings import Settings, Variables

__all__ = ["Devices", "LeastLoaded", "Placer", "RoundRobin", "check_number", "open_devices", "placed_by", "placer_of"]

_WITHOUT_GPUS: Final = 2

Placer = Callable[[int], str]
"""From the bytes of a variable that is about to be made to the device on which it is to be."""


class Devices(msgspec.Struct, frozen=True):
    """TensorFlow's names of the host's device and of the towers', such as `/device:GPU:0`."""

    host: str
    towers: tuple[str, ...]


def open_devices(settings: Settings) -> Devices:
    """Start TensorFlow's devices and return them. Without a GPU the towers are logical CPU devices beside the host's.

    Raises ValueError if there are fewer than the settings ask for. To be called once, before any operation.
    """
    tf.config.set_soft_device_placement(settings.soft_placement)
    tf.debugging.set_log_device_placement(settings.log_placement)
    tf.config.experimental.enable_op_determinism()
    wanted = len(settings.parts)
    gpus = len(tf.config.list_physical_devices("GPU"))
    check_number(wanted, gpus)
    if not gpus:
        (cpu,) = tf.config.list_physical_devices("CPU")
        each = [tf.config.LogicalDeviceConfiguration() for _ in range(1 + (wanted or _WITHOUT_GPUS))]
        tf.config.set_logical_device_configuration(cpu, each)
    host, *more = (device.name for device in tf.config.list_logical_devices("CPU"))
    towers = [device.name for device in tf.config.list_logical_devices("GPU")] or more
    return Devices(host, tuple(towers[: wanted or len(towers)]))


def check_number(wanted: int, gpus: int) -> None:
    """Say so if some GPUs are left without a tower; `wanted` is 0 for all. Raises ValueError if there are too few."""
    if wanted > gpus > 0:
        raise ValueError(f"--towers: {wanted} towers need as many GPUs, and this process has {gpus}")
    if 0 < wanted < gpus:
        idle = f"{wanted} towers leave {gpus - wanted} of {gpus} GPUs idle, which nobody else gets"
        print(f"--towers: {idle}; launch with --gpus to take fewer", file=sys.stderr, flush=True)


class RoundRobin:
    """One device after the other."""

    def __init__(self, devices: Sequence[str]) -> None:
        self._devices, self._made = devices, 0

    def __call__(self, _: int) -> str:
        """Return the device for a variable of any size."""
        self._made += 1
        return self._devices[(self._made - 1) % len(self._devices)]


class LeastLoaded:
    """The device that holds the fewest bytes of variables; of equal ones the first."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.held = dict.fromkeys(devices, 0)

    def __call__(self, size: int) -> str:
        """Return the device for a variable of `size` bytes."""
        device = min(self.held, key=lambda name: self.held[name])
        self.held[device] += size
        return device


def placer_of(variables: Variables, devices: Devices) -> Placer:
    """Return who says where the variables are that all towers share."""
    if variables == "round-robin":
        return RoundRobin(devices.towers)
    if variables == "least-loaded":
        return LeastLoaded(devices.towers)
    return RoundRobin([devices.host])


@contextmanager
def placed_by(placer: Placer) -> Iterator[None]:
    """Within it, each variable is made on the device that `placer` says."""

    def create(make: Any, **described: Any) -> Any:
        initial = described["initial_value"]
        value = initial() if callable(initial) else initial  # Keras gives a function, which draws by lot: call it once
        with tf.device(placer(np.asarray(value).nbytes)):
            return make(**described | {"initial_value": value})

    with tf.variable_creator_scope(create):
        yield
