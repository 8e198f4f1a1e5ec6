"""A TensorFlow 2 script as people write it: it knows nothing of gpusched, and asks for memory growth."""

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
assert len(gpus) == 1
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
    assert tf.config.experimental.get_memory_growth(gpu)
assert float(tf.reduce_sum(tf.ones((2, 2)))) == 4.0
try:
    tf.config.experimental.set_memory_growth(gpus[0], False)
except RuntimeError as error:
    print(f"as TensorFlow has it: {error}")
print("done")
