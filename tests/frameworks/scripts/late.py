"""A script that knows gpusched and calls it: too late, in time, twice; for `python -I`, where no hook runs."""

import sys

sys.path.insert(0, sys.argv[1])

import tensorflow as tf
from tensorflow.python.client import session
from tensorflow.python.eager import context

from gpusched.errors import HostFault, UsageError
from gpusched.frameworks import limit_memory

tf.constant(1)
said = ""
try:
    limit_memory()
except UsageError as error:
    said = str(error)
assert "too late" in said
assert "before the first use" in said
context._reset_context()
counter = session.__dict__.pop("_python_session_create_counter")
untouched = context.Context.set_memory_growth
try:
    limit_memory()
except HostFault as error:
    said = str(error)
assert "there is no tensorflow.python.client.session._python_session_create_counter" in said, said
assert context.Context.set_memory_growth is untouched
session._python_session_create_counter = counter
assert limit_memory() == ("tensorflow",)
replaced = context.Context.set_memory_growth
assert limit_memory() == ("tensorflow",)
assert context.Context.set_memory_growth is replaced
assert context.context()._context_handle is None, "nothing has been started"
print("done")
