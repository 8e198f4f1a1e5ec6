"""A sitecustomize of the user's own: it gives real TensorFlow one GPU, and records what reaches TensorFlow's runtime.

Only the lowest calls are touched, those into the compiled library: the list of physical devices gets one more, and the
serialised options of contexts and sessions are written to $RECORD, one JSON object a line. All of TensorFlow's Python
between a script and those calls is real; the CPU build then ignores the options for GPUs.
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


def record(call: str, config: Any) -> None:
    options = config.gpu_options
    told = {
        "call": call,
        "fraction": round(options.per_process_gpu_memory_fraction, 6),
        "devices": [list(device.memory_limit_mb) for device in options.experimental.virtual_devices],
        "growth": options.allow_growth,
        "pid": os.getpid(),
    }
    with open(os.environ["RECORD"], "a") as file:  # noqa: PTH123
        file.write(json.dumps(told) + "\n")


def with_one_gpu(library: Any) -> None:
    list_devices, set_config = library.TF_ListPhysicalDevices, library.TFE_ContextOptionsSetConfig

    def recorded(options: Any, serialized: bytes) -> None:
        from tensorflow.core.protobuf import config_pb2

        record("context", config_pb2.ConfigProto.FromString(serialized))
        set_config(options, serialized)

    library.TF_ListPhysicalDevices = lambda: [*list_devices(), b"/physical_device:GPU:0"]
    library.TFE_ContextOptionsSetConfig = recorded


def with_recorded_sessions(library: Any) -> None:
    new_options = library.TF_NewSessionOptions

    def recorded(target: Any = None, config: Any = None) -> Any:
        record("session", config)
        return new_options(target=target, config=config)

    library.TF_NewSessionOptions = recorded


class Recorder:
    after: dict[str, Callable[[Any], None]] = {  # noqa: RUF012
        "tensorflow.python.pywrap_tfe": with_one_gpu,
        "tensorflow.python.client.pywrap_tf_session": with_recorded_sessions,
    }

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self.after else None
        if spec is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.after[name](module)

            loader.exec_module = exec_module
        return spec


if "RECORD" in os.environ:
    sys.meta_path.insert(0, Recorder())
