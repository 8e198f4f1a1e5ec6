"""PyTorch: the caching allocator gets the fraction when CUDA starts, which is when the script first needs it.

The limit covers what the caching allocator takes (torch.cuda.set_per_process_memory_fraction); the context, cuDNN and
NCCL come on top: that is what a share's context is for. The key `per_process_memory_fraction` of the variable
PYTORCH_CUDA_ALLOC_CONF would do the same, but older releases raise on a key that they do not know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gpusched.errors import HostFault
from gpusched.frameworks.limit import Limit, log_message, replace_once
from gpusched.frameworks.peaks import Peaks
from gpusched.frameworks.registry import Framework

__all__ = ["FRAMEWORK", "limit_pytorch"]


def limit_pytorch(limit: Limit) -> None:
    """Have torch set the fraction on every visible device when CUDA starts, or now if it has started.

    A script that sets a fraction of its own keeps it, unless it is larger. Raises HostFault for a torch that cannot.
    """
    import torch

    try:
        memory, when_started = torch.cuda.memory, torch.cuda._lazy_call  # noqa: SLF001 (the only way that starts nothing)
        set_fraction = memory.set_per_process_memory_fraction
    except AttributeError as error:
        raise HostFault(f"PyTorch {torch.__version__} cannot be limited: {error}", "use PyTorch 1.8 or newer") from None
    if hasattr(set_fraction, "gpusched_limits"):
        return

    def apply() -> None:
        try:
            for index in range(torch.cuda.device_count()):
                set_fraction(limit.ratio, index)
        except Exception as error:  # noqa: BLE001 (torch would end the script with DeferredCudaCallError)
            log_message(f"the memory limit is NOT applied to torch: {error}")

    replace_once(memory, "set_per_process_memory_fraction", lambda original: _capped(original, limit))
    torch.cuda.set_per_process_memory_fraction = memory.set_per_process_memory_fraction
    when_started(apply)


def _capped(original: Any, limit: Limit) -> Any:
    def set_per_process_memory_fraction(fraction: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(fraction, float) and fraction > limit.ratio:
            log_message(
                f"torch.cuda.set_per_process_memory_fraction({fraction}) is lowered to this process's {limit.ratio}"
            )
            fraction = limit.ratio
        return original(fraction, *args, **kwargs)

    return set_per_process_memory_fraction


def _when_started(call: Callable[[], None]) -> None:
    import torch

    torch.cuda._lazy_call(call)  # noqa: SLF001 (as above)


def _peaks() -> Peaks | None:
    cuda = sys.modules["torch"].cuda
    if not cuda.is_initialized():  # also in a fork of a process that had started CUDA
        return None
    devices = range(cuda.device_count())
    return Peaks(sum(map(cuda.max_memory_allocated, devices)), sum(map(cuda.max_memory_reserved, devices)))


FRAMEWORK = Framework(
    name="torch",
    title="PyTorch",
    limiter=limit_pytorch,
    not_inherited=("PYTORCH_NO_CUDA_MEMORY_CACHING",),  # it takes memory past the limit
    out_of_memory=rb"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory",
    libraries=(b"/libtorch_",),
    when_started=_when_started,
    peaks=_peaks,
    distributions=("torch",),
)
