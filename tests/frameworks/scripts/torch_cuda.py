"""A PyTorch script: real torch, with the calls into its compiled library recorded, so that CUDA seems to start."""

from typing import Any

import torch

assert not torch.cuda.is_initialized(), "nothing has been started by the limit"
told: list[tuple[float, int]] = []
library: Any = torch._C
library._cuda_setMemoryFraction = lambda fraction, device: told.append((fraction, device))
library._cuda_getDeviceCount = lambda: 1
library._cuda_init = lambda: None
torch.cuda._cudart = object()
torch.cuda.device_count = lambda: 1
torch.cuda._check_capability = torch.cuda._check_cubins = lambda: None
torch.cuda._queued_calls = [
    (call, trace) for call, trace in torch.cuda._queued_calls if "limit_pytorch" in call.__qualname__
]
assert len(torch.cuda._queued_calls) == 1, "queued once"
torch.cuda.init()
assert told == [(0.0701, 0)], told
torch.cuda.set_per_process_memory_fraction(0.5, 0)
torch.cuda.memory.set_per_process_memory_fraction(0.01, 0)
assert told[1:] == [(0.0701, 0), (0.01, 0)], told
refused = ""
try:
    torch.cuda.set_per_process_memory_fraction("half", 0)
except TypeError as error:
    refused = str(error)
assert "must be `float`" in refused, "torch refuses what is not a number, as always"
print("done")
