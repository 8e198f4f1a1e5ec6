"""An unchanged JAX script that takes all it can get, 16 MiB at a time, says how much that was, and holds it."""

import json
import sys

import jax
import jax.numpy as jnp

assert jax.devices()[0].platform == "gpu", jax.devices()
held: list[jax.Array] = []
told = ""
while not told:
    try:
        held.append(jnp.full(4 << 20, len(held), jnp.float32).block_until_ready())
    except jax.errors.JaxRuntimeError as error:
        told = str(error)
pool = jax.devices()[0].memory_stats()["bytes_limit"] >> 20
print(json.dumps({"framework": "jax", "mib": 16 * len(held), "pool_mib": pool, "error": told}), flush=True)
sys.stdin.read()
