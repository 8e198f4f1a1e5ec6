"""An unchanged TensorFlow script that takes all it can get, 16 MiB at a time, says how much that was, and holds it."""

import json
import sys

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
held = []
told = ""
with tf.device("/GPU:0"):
    while not told:
        try:
            held.append(tf.zeros(4 << 20))
        except tf.errors.ResourceExhaustedError as error:
            told = str(error)
assert held[0].device.endswith("GPU:0"), held[0].device
pool = tf.config.experimental.get_memory_info("GPU:0")["peak"] >> 20
print(json.dumps({"framework": "tensorflow", "mib": 16 * len(held), "pool_mib": pool, "error": told}), flush=True)
sys.stdin.read()
