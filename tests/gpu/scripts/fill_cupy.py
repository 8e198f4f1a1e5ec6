"""An unchanged CuPy script that takes all it can get, 16 MiB at a time, says how much that was, and holds it."""

import json
import sys

import cupy

held = []
try:
    while True:
        held.append(cupy.zeros(4 << 20, dtype=cupy.float32))
except cupy.cuda.memory.OutOfMemoryError as error:
    told = f"out of memory: {error}"
pool = cupy.get_default_memory_pool().total_bytes() >> 20
print(json.dumps({"framework": "cupy", "mib": 16 * len(held), "pool_mib": pool, "error": told}), flush=True)
sys.stdin.read()
