"""A process that preloads TensorFlow without a limit, and forks a replica that gets one: nothing had been started."""

import os
import sys

import tensorflow as tf

from gpusched.frameworks import limit_memory

assert limit_memory() == (), "the preloading process has no limit"
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.environ.update({"GPUSCHED_MEMORY_LIMIT_MIB": "256", "GPUSCHED_MEMORY_FRACTION": "0.0158"})
assert limit_memory() == ("tensorflow",)
assert float(tf.reduce_sum(tf.ones((2, 2)))) == 4.0
print("done", flush=True)
