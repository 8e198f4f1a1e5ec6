"""An unchanged JAX script that takes 256 MiB, lets them go, and ends, or waits to be killed."""

import sys

import jax
import jax.numpy as jnp

assert jax.devices()[0].platform == "gpu", jax.devices()
held = [jnp.full(4 << 20, number, jnp.float32).block_until_ready() for number in range(16)]
del held
print("taken", flush=True)
sys.stdin.read()
