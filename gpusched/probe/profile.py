"""Machines that are not here: a table of known ones, and any machine that a text such as `4x16GiB` describes.

It must not read this host. Device totals are what NVML reports, because a plan is made of what NVML reports. Where a
driver keeps a part of that for itself, the part stands beside it, as version 2 of NVML's memory call reports it.

Sources of the totals, in MiB:
    K80 11441                       nvidia-smi of driver 396 (sheffield_hpc pull request 1030)
    V100 16 GB 16160, 32 GB 32510   nvidia-smi of drivers 418 to 470, which count no reserve; newer ones: 16384, 32768
    T4 15360, A10G 23028, L4 23034, L40S 46068, A100 40960 and 81920, H100 81559
                                    nvidia-smi of drivers 525 to 580 (modal-client pull request 2797 lists all of them)
    H200 143771                     nvidia-smi of drivers 550 and newer, in many public logs
The reserves are approximate: T4, A10G and A100 by what drivers up to 495 reported less (15109, 22731, 40536, 81251), L4
by what an idle one has free (22564), H100, H200 and L40S by what PyTorch calls the total. They move with the driver.
vCPUs and memory of the AWS sizes: the EC2 user guide, accelerated computing. CPUs near a device are given for the DGX
machines only: `nvidia-smi topo -m` of a DGX A100 (dask-cuda issue 1358) and of a DGX H100 (vllm issue 13855).
"""

import re
from typing import Final, NamedTuple

from gpusched.errors import UsageError
from gpusched.model.device import Device, Inventory
from gpusched.units import format_mib, parse_mib

__all__ = ["PROFILES", "described_machine", "profile_machine"]

_MOST_DEVICES: Final = 10_000
_SHAPE: Final = re.compile(r"\d+x[^+]+(\+\d+x[^+]+)*")


class _Model(NamedTuple):
    name: str
    total_mib: int
    reserved_mib: int
    power_limit_w: int


class _Machine(NamedTuple):
    model: _Model
    devices: int
    vcpus: int
    memory_gib: int
    near: tuple[str, ...] = ()  # per device: the CPUs of its NUMA node


_K80: Final = _Model("Tesla K80", 11441, 0, 149)
_V100: Final = _Model("Tesla V100-SXM2-16GB", 16160, 0, 300)
_V100_32: Final = _Model("Tesla V100-SXM2-32GB", 32510, 0, 300)
_T4: Final = _Model("Tesla T4", 15360, 251, 70)
_A10G: Final = _Model("NVIDIA A10G", 23028, 297, 300)
_L4: Final = _Model("NVIDIA L4", 23034, 470, 72)
_L40S: Final = _Model("NVIDIA L40S", 46068, 603, 350)
_A100: Final = _Model("NVIDIA A100-SXM4-40GB", 40960, 424, 400)
_A100_80: Final = _Model("NVIDIA A100-SXM4-80GB", 81920, 669, 400)
_H100: Final = _Model("NVIDIA H100 80GB HBM3", 81559, 479, 700)
_H200: Final = _Model("NVIDIA H200", 143771, 615, 700)

_DGX_A100: Final = tuple(
    near for near in ("48-63,176-191", "16-31,144-159", "112-127,240-255", "80-95,208-223") for _ in range(2)
)
_DGX_H100: Final = tuple(near for near in ("0-55,112-167", "56-111,168-223") for _ in range(4))

PROFILES: Final[dict[str, _Machine]] = {
    "p2.xlarge": _Machine(_K80, 1, 4, 61),
    "p2.8xlarge": _Machine(_K80, 8, 32, 488),
    "p2.16xlarge": _Machine(_K80, 16, 64, 732),
    "p3.2xlarge": _Machine(_V100, 1, 8, 61),
    "p3.8xlarge": _Machine(_V100, 4, 32, 244),
    "p3.16xlarge": _Machine(_V100, 8, 64, 488),
    "p3dn.24xlarge": _Machine(_V100_32, 8, 96, 768),
    "p4d.24xlarge": _Machine(_A100, 8, 96, 1152),
    "p4de.24xlarge": _Machine(_A100_80, 8, 96, 1152),
    "p5.4xlarge": _Machine(_H100, 1, 16, 256),
    "p5.48xlarge": _Machine(_H100, 8, 192, 2048),
    "p5e.48xlarge": _Machine(_H200, 8, 192, 2048),
    "p5en.48xlarge": _Machine(_H200, 8, 192, 2048),
    "g4dn.xlarge": _Machine(_T4, 1, 4, 16),
    "g4dn.2xlarge": _Machine(_T4, 1, 8, 32),
    "g4dn.4xlarge": _Machine(_T4, 1, 16, 64),
    "g4dn.8xlarge": _Machine(_T4, 1, 32, 128),
    "g4dn.12xlarge": _Machine(_T4, 4, 48, 192),
    "g4dn.16xlarge": _Machine(_T4, 1, 64, 256),
    "g4dn.metal": _Machine(_T4, 8, 96, 384),
    "g5.xlarge": _Machine(_A10G, 1, 4, 16),
    "g5.2xlarge": _Machine(_A10G, 1, 8, 32),
    "g5.4xlarge": _Machine(_A10G, 1, 16, 64),
    "g5.8xlarge": _Machine(_A10G, 1, 32, 128),
    "g5.12xlarge": _Machine(_A10G, 4, 48, 192),
    "g5.16xlarge": _Machine(_A10G, 1, 64, 256),
    "g5.24xlarge": _Machine(_A10G, 4, 96, 384),
    "g5.48xlarge": _Machine(_A10G, 8, 192, 768),
    "g6.xlarge": _Machine(_L4, 1, 4, 16),
    "g6.2xlarge": _Machine(_L4, 1, 8, 32),
    "g6.4xlarge": _Machine(_L4, 1, 16, 64),
    "g6.8xlarge": _Machine(_L4, 1, 32, 128),
    "g6.12xlarge": _Machine(_L4, 4, 48, 192),
    "g6.16xlarge": _Machine(_L4, 1, 64, 256),
    "g6.24xlarge": _Machine(_L4, 4, 96, 384),
    "g6.48xlarge": _Machine(_L4, 8, 192, 768),
    "g6e.xlarge": _Machine(_L40S, 1, 4, 32),
    "g6e.2xlarge": _Machine(_L40S, 1, 8, 64),
    "g6e.4xlarge": _Machine(_L40S, 1, 16, 128),
    "g6e.8xlarge": _Machine(_L40S, 1, 32, 256),
    "g6e.12xlarge": _Machine(_L40S, 4, 48, 384),
    "g6e.16xlarge": _Machine(_L40S, 1, 64, 512),
    "g6e.24xlarge": _Machine(_L40S, 4, 96, 768),
    "g6e.48xlarge": _Machine(_L40S, 8, 192, 1536),
    "dgx-a100": _Machine(_A100, 8, 256, 1024, _DGX_A100),
    "dgx-a100-80gb": _Machine(_A100_80, 8, 256, 2048, _DGX_A100),
    "dgx-h100": _Machine(_H100, 8, 224, 2048, _DGX_H100),
}
"""Every machine that `--machine` knows by name."""


def profile_machine(name: str) -> Inventory | None:
    """Return the idle machine of that name (upper or lower case), source "profile", or None if there is none."""
    name = name.lower()
    machine = PROFILES.get(name)
    if machine is None:
        return None
    devices = tuple(_device(name, index, machine.model, machine.near) for index in range(machine.devices))
    return Inventory(
        host=name,
        source="profile",
        devices=devices,
        cpus=tuple(range(machine.vcpus)),
        memory_mib=machine.memory_gib << 10,
    )


def described_machine(text: str, cpus: tuple[int, ...]) -> Inventory | None:
    """Return the idle machine that `text` describes, such as `4x16GiB` or `1x80GiB+2x24GiB`, with those CPUs.

    None if the text is of another shape. Raises UsageError if a number in it is wrong, or asks for over 10 000 devices.
    """
    text = text.replace(" ", "")
    if not _SHAPE.fullmatch(text):
        return None
    models: list[_Model] = []
    for part in text.split("+"):
        count, _, amount = part.partition("x")
        try:
            total_mib = parse_mib(amount, f"machine {text}")
        except UsageError as error:
            raise UsageError(error.message, "describe each GPU by its memory: an A100 of 80 GiB is 1x80GiB") from None
        if not 0 < int(count[:9]) <= _MOST_DEVICES - len(models):
            raise UsageError(
                f"machine {text}: {count} devices of {amount}", f"give from 1 to {_MOST_DEVICES} devices in all"
            )
        models += [_Model(f"GPU {format_mib(total_mib)}", total_mib, 0, 0)] * int(count)
    devices = tuple(_device(text, index, model) for index, model in enumerate(models))
    return Inventory(host=text, source="profile", devices=devices, cpus=cpus)


def _device(machine: str, index: int, model: _Model, near: tuple[str, ...] = ()) -> Device:
    return Device(
        index=index,
        uuid=f"SIM-{machine}-{index}",
        name=model.name,
        memory_total_mib=model.total_mib,
        memory_used_mib=0,
        memory_reserved_mib=model.reserved_mib,
        power_limit_w=model.power_limit_w or None,
        compute_mode="default",
        cpus=_cpus(near[index] if near else ""),
    )


def _cpus(ranges: str) -> tuple[int, ...]:
    spans = (span.split("-") for span in ranges.split(",") if span)
    return tuple(cpu for first, last in spans for cpu in range(int(first), int(last) + 1))
