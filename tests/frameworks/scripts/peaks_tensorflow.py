"""Real TensorFlow with a GPU that the compiled library seems to list: a second CPU under another name."""

import threading
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from gpusched.frameworks.tensorflow import FRAMEWORK

library: Any = pywrap_tfe
asked: list[str] = []
name_of, type_of = library.TF_DeviceListName, library.TF_DeviceListType
library.TF_DeviceListName = lambda found, index: name_of(found, index).replace("CPU:1", "GPU:0")
library.TF_DeviceListType = lambda found, index: "GPU" if index == 1 else type_of(found, index)


def memory_info(_: Any, device: str) -> dict[str, int]:
    assert device == "/device:GPU:0", device
    asked.append(device)
    return {"current": 0, "peak": (3 << 20) + 1}


library.TFE_GetMemoryInfo = memory_info
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
assert FRAMEWORK.peaks() is None
print(threading.active_count(), len(asked))
assert context._context is None or context._context._context_handle is None, "nothing has been started by the record"
assert float(tf.reduce_sum(tf.ones((2, 2)))) == 4.0
print(threading.active_count())
