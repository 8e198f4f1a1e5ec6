"""An unchanged PyTorch script that takes all it can get, 16 MiB at a time, says how much that was, and holds it."""

import json
import sys

import torch

held = []
try:
    while True:
        held.append(torch.zeros(4 << 20, dtype=torch.float32, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    told = str(error)
pool = torch.cuda.memory_reserved() >> 20
print(json.dumps({"framework": "torch", "mib": 16 * len(held), "pool_mib": pool, "error": told}), flush=True)
sys.stdin.read()
