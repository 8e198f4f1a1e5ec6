"""Checks of this interpreter, of what is installed for it, and of the import hook. Pure functions."""

import re
from collections.abc import Iterable
from typing import Final

from gpusched.doctor.facts import OWN_DISTRIBUTIONS, DeviceFacts, Finding, SoftwareFacts, error, ok, warning
from gpusched.environment import HOOK_DIRECTORY

__all__ = [
    "check_hook",
    "check_jax",
    "check_nvml_binding",
    "check_python",
    "check_tensorflow",
    "check_torch",
]

_PYNVML_THAT_YIELDS: Final = (12,)
_TORCH_WITHOUT_VOLTA: Final = (2, 8)
_CUDA_JAX: Final = ("jax-cuda12-plugin", "jax-cuda13-plugin")


def check_python(facts: SoftwareFacts) -> Finding:
    """Which gpusched, on which Python, with what?"""
    versions = ", ".join(f"{name} {facts.installed[name]}" for name in OWN_DISTRIBUTIONS if name in facts.installed)
    missing = [name for name in OWN_DISTRIBUTIONS if name not in facts.installed]
    found = f"gpusched {facts.gpusched} on Python {facts.python} ({facts.executable}); {versions}"
    if missing:
        return warning("versions", f"{found}; not installed: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return ok("versions", found)


def check_nvml_binding(facts: SoftwareFacts) -> Finding:
    """Is the pynvml that is imported NVIDIA's own?"""
    other = facts.installed.get("pynvml")
    if other is None:
        return ok("pynvml", "NVIDIA's own binding, nvidia-ml-py")
    if _release(other) < _PYNVML_THAT_YIELDS:
        found = f"the distribution pynvml {other} takes the place of NVIDIA's module of that name"
        return error("pynvml", found, "pip uninstall -y pynvml; pip install --force-reinstall nvidia-ml-py")
    return warning("pynvml", f"the distribution pynvml {other} is deprecated by NVIDIA", "pip uninstall -y pynvml")


def check_tensorflow(facts: SoftwareFacts, devices: DeviceFacts) -> Finding:
    """Can TensorFlow use the devices?"""
    whole, for_cpu = facts.installed.get("tensorflow"), facts.installed.get("tensorflow-cpu")
    if whole is None and for_cpu is None:
        return ok(
            "tensorflow",
            "not installed",
            "pip install '.[tensorflow]'  # in gpusched's source folder; the workloads that come along need it",
        )
    found = f"tensorflow {whole}" if whole else f"tensorflow-cpu {for_cpu}"
    if not devices.inventory.devices:
        return ok("tensorflow", found)
    if whole is None:
        fix = "pip uninstall -y tensorflow-cpu; pip install '.[cuda]'  # in gpusched's source folder"
        return warning("tensorflow", f"{found} knows no GPU, and this host has some", fix)
    if "nvidia-cudnn-cu12" not in facts.installed:
        found += " without NVIDIA's libraries from pip: it sees a GPU only if the host has those of its version"
        return warning("tensorflow", found, "pip install 'tensorflow[and-cuda]'")
    return ok("tensorflow", found)


def check_torch(facts: SoftwareFacts, devices: DeviceFacts) -> Finding:
    """Can PyTorch use the devices?"""
    version = facts.installed.get("torch")
    if version is None:
        return ok("torch", "not installed")
    names = {device.name for device in devices.inventory.devices}
    if names and version.endswith("+cpu"):
        fix = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
        return warning("torch", f"torch {version} knows no GPU, and this host has some", fix)
    if any("V100" in name for name in names) and _release(version) >= _TORCH_WITHOUT_VOLTA and "cu126" not in version:
        found = f"torch {version}: builds from 2.8 on for CUDA 12.8 and newer do not run on a V100"
        return warning("torch", found, "pip install torch --index-url https://download.pytorch.org/whl/cu126")
    return ok("torch", f"torch {version}")


def check_jax(facts: SoftwareFacts, devices: DeviceFacts) -> Iterable[Finding]:
    """Can JAX use the devices, and does the environment not keep it from doing so?"""
    version = facts.installed.get("jax")
    if version is None:
        yield ok("jax", "not installed")
        return
    if devices.inventory.devices and not any(plugin in facts.installed for plugin in _CUDA_JAX):
        found = f"jax {version} has no CUDA plugin: it would run on the CPUs"
        yield warning("jax", found, "pip install 'jax[cuda12]'")
    else:
        yield ok("jax", f"jax {version}")
    if len(facts.variables) > 1:
        found = f"{' and '.join(facts.variables)} are both set: JAX refuses to start outside of gpusched's jobs"
        yield warning("jax", found, "unset XLA_PYTHON_CLIENT_MEM_FRACTION")


def check_hook(trouble: str) -> Finding:
    """Does an interpreter started as a replica's limit what it imports?"""
    if not trouble:
        return ok("import-hook", "an interpreter that is started as a replica's has it")
    found = f"scripts that do not call limit_memory() keep to no limit: {trouble}"
    fix = f"PYTHONPATH={HOOK_DIRECTORY} python -v -c '' 2>&1 | grep -i sitecustomize  # what stands in its way"
    return error("import-hook", found, fix)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])
