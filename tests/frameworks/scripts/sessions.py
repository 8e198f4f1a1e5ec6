"""A TensorFlow 1 script: sessions with a ConfigProto of its own, one after the other, in graph mode."""

import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context

tf.disable_eager_execution()


def config(fraction: float | None) -> tf.ConfigProto:
    if fraction is None:
        return tf.ConfigProto(allow_soft_placement=True)
    return tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=fraction))


for fraction in (None, 0.9, 0.01):
    asked = config(fraction)
    before = asked.SerializeToString()
    with tf.Session(config=asked) as session:
        assert session.run(tf.constant(3) + 4) == 7
    assert asked.SerializeToString() == before, "the script's own object is not changed"
tf.Session().close()
interactive = tf.InteractiveSession()
interactive.close()
copied = context.context().config
copied.gpu_options.per_process_gpu_memory_fraction = 0.5
tf.Session(config=copied).close()
copied = tf.ConfigProto()
copied.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[3000.0, 1000.0])
tf.Session(config=copied).close()
for asked in (None, config(0.5)):
    server = tf.train.Server.create_local_server(config=asked, start=False)
    assert round(server.server_def.default_session_config.gpu_options.per_process_gpu_memory_fraction, 4) == 0.0701
print("done")
