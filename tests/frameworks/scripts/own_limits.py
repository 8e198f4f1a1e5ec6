"""TensorFlow 2 scripts that choose their own logical devices, one after the other, each in a fresh context."""

import tensorflow as tf
from tensorflow.python.eager import context

Limit = tf.config.LogicalDeviceConfiguration


def gpu() -> tf.config.PhysicalDevice:
    context._reset_context()
    return tf.config.list_physical_devices("GPU")[0]


def limits(device: tf.config.PhysicalDevice) -> list[float]:
    return [each.memory_limit for each in tf.config.get_logical_device_configuration(device)]


device = gpu()
assert limits(device) == [1133]

tf.config.set_logical_device_configuration(gpu(), [Limit(memory_limit=512)])
assert limits(device) == [512]
refused = ""
try:
    tf.config.experimental.set_memory_growth(device, True)
except ValueError as error:
    refused = str(error)
assert "virtual devices configured" in refused, "the script's own logical devices refuse growth, as always"

tf.config.experimental.set_virtual_device_configuration(gpu(), [Limit(memory_limit=4096), Limit(memory_limit=2048)])
assert limits(device) == [755, 377]

tf.config.set_logical_device_configuration(gpu(), [])
assert limits(device) == [1133]

refused = ""
try:
    tf.config.set_logical_device_configuration(gpu(), [Limit()])
except ValueError as error:
    refused = str(error)
assert "memory limit is required" in refused, "a logical GPU without a limit is refused, as always"

for fraction, expected in ((0.9, 1133), (0.0, 1133), (0.01, 161)):
    context._reset_context()
    options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=fraction)
    config = tf.compat.v1.ConfigProto(gpu_options=options)
    eager = context.Context(config=config)
    sent = eager.config.gpu_options
    assert sent.per_process_gpu_memory_fraction == 0
    assert [list(each.memory_limit_mb) for each in sent.experimental.virtual_devices] == [[expected]], sent
    assert config.gpu_options.per_process_gpu_memory_fraction == fraction, "the script's own object is not changed"
print("done")
