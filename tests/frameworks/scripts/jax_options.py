"""What real jaxlib would hand to its CUDA plugin, for scripts with variables of their own."""

import os

from jaxlib import xla_client

NEW, OLD = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
GIVEN = {name: os.environ[name] for name in (NEW, OLD) if name in os.environ}
assert list(GIVEN.values()) == ["0.0701"], GIVEN


def fraction(**own: str) -> float:
    """Return the fraction for a script that sets the variables `own` on top of what it was given."""
    for name in (NEW, OLD, "XLA_PYTHON_CLIENT_ALLOCATOR"):
        os.environ.pop(name, None)
    os.environ.update(GIVEN | own)
    return float(xla_client.generate_pjrt_gpu_plugin_options()["memory_fraction"])


assert fraction() == 0.0701
for name in (NEW, OLD):
    assert fraction(**{name: "0.5"}) == 0.0701
    assert fraction(**{name: "0.01"}) == 0.01
os.environ[NEW] = os.environ[OLD] = "0.0701"
refused = ""
try:
    xla_client.generate_pjrt_gpu_plugin_options.__wrapped__()
except ValueError as error:
    refused = str(error)
assert "specified together" in refused, "jaxlib itself refuses both names: the reason for setting only one"
assert fraction(XLA_PYTHON_CLIENT_ALLOCATOR="platform") == 0.0701
options = xla_client.generate_pjrt_gpu_plugin_options()
assert (options["allocator"], options["preallocate"]) == ("bfc", False)

import jax  # noqa: E402 (only now, so that what is above shows that jaxlib alone is enough)

assert float(jax.numpy.ones(3).sum()) == 3.0
print("done")
