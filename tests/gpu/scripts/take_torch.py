"""An unchanged PyTorch script that takes 256 MiB, lets them go, and ends, or waits to be killed."""

import sys

import torch

held = [torch.zeros(4 << 20, dtype=torch.float32, device="cuda") for _ in range(16)]
torch.cuda.synchronize()
del held
print("taken", flush=True)
sys.stdin.read()
