"""Checks of the driver and of the devices. Each is a pure function of what was collected."""

from collections.abc import Iterable, Sequence
from typing import Final

from gpusched.doctor.facts import DeviceFacts, Finding, error, ok, warning
from gpusched.errors import UsageError
from gpusched.model.device import HARDWARE_SLOWDOWN, HEAT, POWER_BRAKE, Device, DeviceProcess
from gpusched.model.job import VisibleDevices
from gpusched.model.lease import holders
from gpusched.planner import restriction
from gpusched.units import format_mib, format_seconds, number

__all__ = [
    "check_compute_mode",
    "check_cuda_node",
    "check_driver",
    "check_ecc",
    "check_foreign",
    "check_health",
    "check_mig",
    "check_mps",
    "check_persistence",
    "check_slowdown",
    "check_visible_devices",
]

_MOST_NAMED: Final = 4
_HARMFUL: Final = {HEAT, HARDWARE_SLOWDOWN, POWER_BRAKE}
_FIXES: Final = (
    ("do not match", "sudo reboot"),
    ("not loaded", "sudo modprobe nvidia"),
    ("no permission", 'sudo usermod -aG video "$USER"  # and log in again; who may: ls -l /dev/nvidia*'),
    ("cgroup", "docker run --gpus all ...  # or another place where the devices are allowed"),
    ("did not answer", "sudo dmesg | grep -i xid  # and then: sudo reboot"),
)


def check_driver(facts: DeviceFacts) -> Finding:
    """Driver and library: are both there, do they match, do they answer?"""
    inventory = facts.inventory
    halves = f"module {facts.module_version or 'unknown'}, library {facts.library_version or 'unknown'}"
    differ = facts.module_version and facts.library_version and facts.module_version != facts.library_version
    on_bus = f"{number(facts.on_bus, 'NVIDIA device')} on the PCI bus"
    if inventory.problem is not None:
        harmless = inventory.source == "cpu" and not facts.on_bus
        fix = next((fix for text, fix in _FIXES if text in inventory.problem), "nvidia-smi")
        found = f"{inventory.problem} ({halves})" if differ else inventory.problem
        return warning("driver", found, fix) if harmless else error("driver", found, fix)
    if not inventory.devices and facts.on_bus:
        fix = "sudo ubuntu-drivers install  # or as docs.nvidia.com/datacenter/tesla/driver-installation-guide has it"
        return error("driver", f"{on_bus}, and no driver or library (libnvidia-ml.so.1) that shows it", fix)
    if not inventory.devices:
        return ok("driver", "no NVIDIA device on this host: jobs run on its CPUs")
    if differ:
        return error("driver", f"driver and library do not match: {halves}", "sudo reboot")
    boards = sum(device.mig_index is None for device in inventory.devices)
    cuda = f", CUDA {inventory.cuda_version}" if inventory.cuda_version else ""
    return ok("driver", f"{inventory.driver_version or 'version unknown'}{cuda}, {number(boards, 'device')}")


def check_cuda_node(facts: DeviceFacts) -> Iterable[Finding]:
    """Is there the node that CUDA needs and NVML does not?"""
    if facts.uvm_missing:
        found = "/dev/nvidia-uvm is missing: NVML shows devices where CUDA finds none"
        yield warning("cuda-node", found, "sudo nvidia-modprobe -u -c=0")


def check_health(facts: DeviceFacts) -> Finding:
    """Are devices lost, drained, or silent?"""
    if facts.drained_problem is not None:
        fix = "gpusched status  # it names the file: mend it, or move it away, and no device is drained"
        return error("health", f"it is not known which devices are drained: {facts.drained_problem}", fix)
    ill = [device for device in _physical(facts) if device.health != "ok"]
    if not ill:
        return ok("health", "no device is lost or drained")
    found = "; ".join(f"GPU {device.label}: {device.problem or device.health}" for device in ill)
    drained = [device.label for device in ill if (device.problem or "").startswith("drained")]
    if drained:
        reset = f"sudo nvidia-smi --gpu-reset -i {','.join(drained)}"
        undrain = "; ".join(f"gpusched daemon undrain {label}" for label in drained)
        return error("health", found, f"{reset}; {undrain}  # when nothing runs there")
    silent = any("did not answer" in (device.problem or "") for device in ill)
    return error("health", found, _FIXES[-1][1] if silent else "sudo reboot")


def check_ecc(facts: DeviceFacts) -> Finding:
    """Did memory lose what it held?"""
    counted = [device for device in _physical(facts) if device.ecc_errors is not None]
    wrong = [device for device in counted if device.ecc_errors]
    if wrong:
        found = "; ".join(f"GPU {each.label}: {number(each.ecc_errors or 0, 'uncorrected error')}" for each in wrong)
        fix = f"sudo nvidia-smi --gpu-reset -i {_labels(wrong)}  # when nothing runs there"
        return error("ecc", f"{found} since the driver was loaded", fix)
    known = "no uncorrected memory errors" if counted else "no device counts memory errors (ECC)"
    return ok("ecc", known)


def check_compute_mode(facts: DeviceFacts) -> Finding:
    """May several processes share a device?"""
    physical = _physical(facts)
    closed = [each for each in physical if each.compute_mode == "prohibited"]
    single = [each for each in physical if each.compute_mode in ("exclusive_process", "exclusive_thread")]
    if closed:
        found = f"{_named(closed)}: prohibited, no process may use it"
        return error("compute-mode", found, f"sudo nvidia-smi -i {_labels(closed)} -c DEFAULT")
    if single:
        found = f"{_named(single)}: exclusive, takes one replica only"
        return warning("compute-mode", found, f"sudo nvidia-smi -i {_labels(single)} -c DEFAULT")
    return ok("compute-mode", "processes may share every device")


def check_persistence(facts: DeviceFacts) -> Finding:
    """Does the driver stay loaded between jobs?"""
    off = [each for each in _physical(facts) if each.persistence_mode is False]
    if off:
        found = f"{_named(off)}: off, so that the driver is set up again for each first process, which takes seconds"
        fix = f"sudo systemctl enable --now nvidia-persistenced  # or: sudo nvidia-smi -i {_labels(off)} -pm 1"
        return warning("persistence-mode", found, fix)
    return ok("persistence-mode", "no device is set up again for each process")


def check_slowdown(facts: DeviceFacts) -> Finding:
    """Does heat or a lack of power keep devices slow just now?"""
    slow = [device for device in _physical(facts) if device.slowed_by]
    harmed = [device for device in slow if _HARMFUL.intersection(device.slowed_by or ())]
    if harmed:
        indices = _labels(harmed)
        fix = f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {indices}  # then check cooling and power supply"
        return warning("slowdown", f"slowed just now: {_slowed(harmed)}", fix)
    if all(device.slowed_by is None for device in _physical(facts)):
        return ok("slowdown", "no device reports what slows it")
    return ok("slowdown", "no device is slowed by heat or for want of power" + (f"; {_slowed(slow)}" if slow else ""))


def check_mig(facts: DeviceFacts) -> Finding:
    """Is MIG on where there is no instance to use?"""
    with_instances = {each.index for each in facts.inventory.devices if each.mig_index is not None}
    empty = [each for each in _physical(facts) if each.mig_mode and each.index not in with_instances]
    if empty:
        indices = _labels(empty)
        fix = f"sudo nvidia-smi mig -i {indices} -cgi 0 -C  # or off: sudo nvidia-smi -i {indices} -mig 0"
        return warning("mig", f"{_named(empty)}: on, without an instance, so nothing can run there", fix)
    instances = sum(each.mig_index is not None for each in facts.inventory.devices)
    return ok("mig", number(instances, "instance") if instances else "off, or there is none")


def check_visible_devices(facts: DeviceFacts) -> Finding:
    """Does this shell hide devices from CUDA, and so from what is planned here?"""
    seen = facts.variables.get("CUDA_VISIBLE_DEVICES")
    if seen is None:
        return ok("visible-devices", "CUDA_VISIBLE_DEVICES is not set")
    fix = "unset CUDA_VISIBLE_DEVICES  # to use some only: --gpus 0,2"
    visible = VisibleDevices(names=seen, by_bus=facts.variables.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
    try:
        left = restriction(facts.inventory, visible).line
    except UsageError as error:
        return warning("visible-devices", str(error), fix)
    if not left:
        return ok("visible-devices", f"{visible.variable} names all devices")
    return warning("visible-devices", f"{left} by plan, launch, run and join in this shell", fix)


def check_mps(facts: DeviceFacts) -> Finding:
    """Does CUDA MPS stand between processes and devices?"""
    if not facts.mps:
        return ok("mps", "CUDA MPS does not run")
    found = f"CUDA MPS runs (process {facts.mps[0]}): a fault of one client ends all clients on its device"
    return warning("mps", found, "echo quit | nvidia-cuda-mps-control  # as who started it")


def check_foreign(facts: DeviceFacts) -> Finding:
    """Who holds device memory beside the jobs of gpusched?"""
    ours = holders(facts.leases)
    foreign = [
        (process.memory_mib, device, process)
        for device in facts.inventory.devices
        for process in device.processes
        if process.pid not in ours
    ]
    if not foreign:
        return ok("foreign-memory", "no process holds device memory beside the jobs of gpusched")
    foreign.sort(key=lambda each: each[0] or 0, reverse=True)
    named = [
        f"process {process.pid} of {process.user or 'somebody'} holds "
        f"{'an unknown amount' if mib is None else format_mib(mib)} of GPU {device.label}{_idle(process, facts.now)}"
        for mib, device, process in foreign
    ]
    more = [f"and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    return warning("foreign-memory", "; ".join(named[:_MOST_NAMED] + more), "gpusched status")


def _idle(process: DeviceProcess, now: float) -> str:
    """Return ` and has done nothing for 3h12m`, empty for a process of which that is not known."""
    if process.idle_since is None:
        return ""
    return f" and has done nothing for {format_seconds(max(1.0, round(now - process.idle_since)))}"


def _physical(facts: DeviceFacts) -> list[Device]:
    return [device for device in facts.inventory.devices if device.mig_index is None]


def _labels(devices: Sequence[Device]) -> str:
    return ",".join(device.label for device in devices)


def _slowed(devices: Sequence[Device]) -> str:
    return "; ".join(f"GPU {device.label} by {', '.join(device.slowed_by or ())}" for device in devices)


def _named(devices: Sequence[Device]) -> str:
    return f"GPU {_labels(devices)}"
