"""An unchanged TensorFlow script that takes 256 MiB, lets them go, and ends, or waits to be killed."""

import sys

import tensorflow as tf

with tf.device("/GPU:0"):
    held = [tf.zeros(4 << 20) for _ in range(16)]
assert held[0].device.endswith("GPU:0"), held[0].device
del held
print("taken", flush=True)
sys.stdin.read()
