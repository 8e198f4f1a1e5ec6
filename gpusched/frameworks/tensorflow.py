# ruff: noqa: SLF001 (what is changed here is TensorFlow's inside: nothing public does it without starting CUDA)
"""TensorFlow: eager code gets a logical device of the limit's size, TF1-style sessions get the fraction. Never both.

The two are invalid together in one ConfigProto, but may stand side by side in one process: whichever creates the
device first makes the one allocator of the process, and every later one shares it
(tensorflow/core/common_runtime/gpu/gpu_process_state.cc, GetGPUAllocator). So both are limited, each in its own way.

Nothing is asked of CUDA here. The context learns its limit at the moment at which the script first asks for devices:
every reader of its device settings calls Context._initialize_physical_devices first
(tensorflow/python/eager/context.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from gpusched.errors import HostFault, UsageError
from gpusched.frameworks.limit import Limit, log_message, replace_once
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework

__all__ = ["FRAMEWORK", "limit_tensorflow"]


class _OurDevices(list[Any]):
    """The logical devices that were set here, not by the script; equal to any list of the same devices."""


def limit_tensorflow(limit: Limit) -> None:
    """Make everything in this process that can start TensorFlow's GPU devices keep to `limit`.

    Raises UsageError if TensorFlow has started its devices already, HostFault for a release that is not understood.
    """
    import tensorflow as tf
    from tensorflow.python.client import session
    from tensorflow.python.eager import context
    from tensorflow.python.training import server_lib

    needed = {
        context: ("context_safe", "LogicalDeviceConfiguration"),
        context.Context: ("_initialize_physical_devices", "set_memory_growth", "set_logical_device_configuration"),
        session: ("BaseSession", "_python_session_create_counter"),
        server_lib: ("_make_server_def",),
    }
    unknown = [f"{owner.__name__}.{name}" for owner in needed for name in needed[owner] if not hasattr(owner, name)]
    if unknown:  # all of it is there, or nothing is changed
        raise HostFault(
            f"TensorFlow {tf.__version__} cannot be limited: there is no {', '.join(unknown)}",
            "set the limit in the script: tf.config.set_logical_device_configuration, $GPUSCHED_MEMORY_LIMIT_MIB",
        )
    if hasattr(context.Context.set_memory_growth, "gpusched_limits"):
        return
    started = getattr(context.context_safe(), "_context_handle", None) is not None
    if started or session._python_session_create_counter.get_cell().value():
        raise UsageError(
            "the memory limit comes too late: TensorFlow has started its devices already",
            "call gpusched.frameworks.limit_memory() before the first use of TensorFlow, best right after importing it",
        )
    _limit_contexts(context, limit)
    _limit_sessions(session, limit)
    _limit_servers(server_lib, limit)


def _limit_contexts(module: Any, limit: Limit) -> None:
    """Give every GPU of every context logical devices within the limit, the script's own or one of ours."""
    import threading

    lock = threading.RLock()  # TensorFlow calls the first method again from inside of it

    def initialize(original: Any) -> Any:
        def _initialize_physical_devices(self: Any, *args: Any, **kwargs: Any) -> None:
            with lock:
                original(self, *args, **kwargs)
                _configure(self, module.LogicalDeviceConfiguration, limit)

        return _initialize_physical_devices

    def configure(original: Any) -> Any:
        def set_logical_device_configuration(self: Any, dev: Any, virtual_devices: Any) -> None:
            if getattr(dev, "device_type", None) == "GPU":
                virtual_devices = _within(virtual_devices, module.LogicalDeviceConfiguration, limit.mib)
            original(self, dev, virtual_devices)

        return set_logical_device_configuration

    replace_once(module.Context, "_initialize_physical_devices", initialize)
    replace_once(module.Context, "set_logical_device_configuration", configure)
    replace_once(module.Context, "set_memory_growth", _growing)


def _configure(context: Any, configuration: Any, limit: Limit) -> None:
    if context._context_handle is not None:
        return
    asked = _take_gpu_options(context, limit)
    devices = context._virtual_device_map
    for device in context._physical_devices:
        if device.device_type == "GPU":
            chosen = devices.get(device) or [configuration(memory_limit=mib) for mib in asked]
            devices[device] = _within(chosen, configuration, limit.mib)


def _take_gpu_options(context: Any, limit: Limit) -> list[float]:
    """Return, in MiB, the logical devices that a ConfigProto given to the context asks for, and take them out of it.

    Such a context comes from tf.compat.v1.enable_eager_execution(config=...). What it asks for moves to where
    TensorFlow keeps logical devices, since a fraction beside them would be invalid.
    """
    if context._config is None:
        return []
    config = type(context._config)()
    config.CopyFrom(context._config)
    context._config, options = config, config.gpu_options  # the script's own stays as it wrote it
    asked = [mib for device in options.experimental.virtual_devices[:1] for mib in device.memory_limit_mb]
    fraction = options.per_process_gpu_memory_fraction
    _report_lowered(fraction, limit)
    if not asked and 0 < fraction < limit.ratio:
        asked = [int(limit.mib * fraction / limit.ratio)]
    options.per_process_gpu_memory_fraction = 0
    del options.experimental.virtual_devices[:]
    return asked


def _within(chosen: Any, configuration: Any, mib: int) -> Any:
    """Return the logical devices `chosen`, shrunk in proportion if their sum passes `mib`; ours if none is chosen."""
    if not chosen:
        return _OurDevices([configuration(memory_limit=mib)])
    if any(device.memory_limit is None for device in chosen):
        return chosen  # TensorFlow refuses it, with its own words
    total = sum(device.memory_limit for device in chosen)
    if total <= mib:
        return chosen
    _report_shrunk(total, mib)
    return [device._replace(memory_limit=int(device.memory_limit * mib / total)) for device in chosen]


def _growing(original: Any) -> Any:
    """TensorFlow refuses memory growth beside logical devices: beside ours it is remembered, and grows anyway."""

    def set_memory_growth(self: Any, dev: Any, enable: Any) -> None:
        self._initialize_physical_devices()
        if not isinstance(self._virtual_device_map.get(dev), _OurDevices):
            original(self, dev, enable)
        elif self._memory_growth_map.get(dev) != enable:
            if self._context_handle is not None:
                raise RuntimeError("Physical devices cannot be modified after being initialized")
            self._memory_growth_map[dev] = enable
            log_message(
                f"set_memory_growth({dev.name}, {enable}) changes nothing: memory grows up to this process's limit"
            )

    return set_memory_growth


def _limit_sessions(module: Any, limit: Limit) -> None:
    """Limit the ConfigProto of every session; one without takes the context's, which has its logical devices."""

    def construct(original: Any) -> Any:
        def __init__(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:  # noqa: N807
            proto = module.config_pb2.ConfigProto
            original(self, target, graph, _limited(config, limit) if isinstance(config, proto) else config)

        return __init__

    replace_once(module.BaseSession, "__init__", construct)


def _limit_servers(module: Any, limit: Limit) -> None:
    """Limit the sessions that tf.distribute.Server runs for others; it creates the devices by its own options."""

    def describe(original: Any) -> Any:
        def _make_server_def(*args: Any, **kwargs: Any) -> Any:
            server = original(*args, **kwargs)
            server.default_session_config.CopyFrom(_limited(server.default_session_config, limit))
            return server

        return _make_server_def

    replace_once(module, "_make_server_def", describe)


def _limited(config: Any, limit: Limit) -> Any:
    """Return a copy of the ConfigProto `config` that keeps to `limit`, by the fraction or by its own logical devices.

    tensorflow/core/protobuf/config.proto: with `virtual_devices`, `per_process_gpu_memory_fraction` is invalid.
    """
    kept = type(config)()
    kept.CopyFrom(config)
    options = kept.gpu_options
    asked = options.per_process_gpu_memory_fraction
    devices = options.experimental.virtual_devices
    if asked > 0 and all(list(device.memory_limit_mb) == [limit.mib] for device in devices):
        del devices[:]  # ours, copied from the context by a script that then sets its fraction
    _report_lowered(asked, limit)
    if not any(device.memory_limit_mb for device in devices):
        options.per_process_gpu_memory_fraction = min(asked, limit.ratio) if asked > 0 else limit.ratio
        options.allow_growth = True
    for device in devices:
        total = sum(device.memory_limit_mb)
        if total > limit.mib:
            _report_shrunk(total, limit.mib)
            device.memory_limit_mb[:] = [int(mib * limit.mib / total) for mib in device.memory_limit_mb]
    return kept


def _report_lowered(fraction: float, limit: Limit) -> None:
    if fraction > limit.ratio:
        log_message(f"per_process_gpu_memory_fraction = {fraction:g} is lowered to this process's {limit.ratio}")


def _report_shrunk(asked_mib: float, mib: int) -> None:
    log_message(f"logical devices of {asked_mib:g} MiB are shrunk to this process's {mib} MiB")


def _when_started(call: Callable[[], None]) -> None:
    """The context lists its devices when it has started them. Sessions and servers of TF1 have none that answers."""
    module: Any = sys.modules["tensorflow.python.eager.context"]

    def listing(original: Any) -> Any:
        def _initialize_logical_devices(self: Any) -> None:
            original(self)
            if _gpus(self):
                call()

        return _initialize_logical_devices

    replace_once(module.Context, "_initialize_logical_devices", listing)
    if _gpus(module._context):
        call()


def _gpus(context: Any) -> list[str]:
    """Return the names of the GPUs that a context has started."""
    devices = getattr(context, "_logical_devices", None) or ()
    return [device.name for device in devices if device.device_type == "GPU"]


def _peaks() -> Peaks | None:
    context = sys.modules["tensorflow.python.eager.context"]._context
    if not getattr(context, "_initialized", False):
        return None
    found = []
    for name in _gpus(context):
        with contextlib.suppress(ValueError):  # another host's, in a cluster
            found.append(context.get_memory_info(name)["peak"])
    return Peaks(sum(found), _taken(context)) if found else None


def _taken(context: Any) -> int | None:
    """Return in bytes what TensorFlow takes if it does not grow: all that it may. While it grows it does not count it.

    The variable weighs more than the setting (tensorflow/core/common_runtime/gpu/gpu_bfc_allocator.cc).
    """
    setting = any(context._memory_growth_map.values())
    limits = [
        device.memory_limit
        for physical, devices in context._virtual_device_map.items()
        for device in devices
        if physical.device_type == "GPU"
    ]
    grows = {"true": True, "false": False}.get(os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", ""), setting)
    return None if grows or not limits or None in limits else int(sum(limits)) << 20


def _environment(*_: object) -> dict[str, str]:
    return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}  # there is no variable for a limit


def _obstacle_to_fork() -> str | None:
    module = sys.modules.get("tensorflow.python.eager.context")
    if getattr(getattr(module, "_context", None), "_context_handle", None) is None:
        return None
    return "it has started TensorFlow's context, as the first operation does"


FRAMEWORK = Framework(
    name="tensorflow",
    title="TensorFlow",
    limiter=limit_tensorflow,
    environment=_environment,
    threads=("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
    not_inherited=(
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",  # this and the next take memory past the limit
        "TF_GPU_ALLOCATOR",
    ),
    out_of_memory=rb"RESOURCE_EXHAUSTED|ResourceExhaustedError|CUDA_ERROR_OUT_OF_MEMORY",
    libraries=(b"/_pywrap_tensorflow", b"/libtensorflow_"),
    obstacle_to_fork=_obstacle_to_fork,
    when_started=_when_started,
    peaks=_peaks,
    distributions=("tensorflow", "tensorflow-cpu", "nvidia-cudnn-cu12"),
    compared=("tensorflow", "keras"),
    only_cpus="tensorflow-cpu",
    install_hint="in gpusched's source folder: pip install '.[tensorflow]', with an NVIDIA GPU '.[cuda]'",
)
