"""Makes findings of facts: every check in the order in which a person reads them, and none is the end of the others."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from gpusched.doctor import check_devices, check_gpusched, check_host, check_software
from gpusched.doctor.facts import DeviceFacts, Facts, Finding, SoftwareFacts, error, ok, warning
from gpusched.frameworks.registry import Framework, frameworks

__all__ = ["examine", "framework_checks"]

Check = Callable[..., Finding | Iterable[Finding]]


def framework_checks() -> tuple[Check, ...]:
    """Return a check for each registered framework: its own, else whether it is installed."""
    own: dict[str, Check] = {
        "tensorflow": check_software.check_tensorflow,
        "torch": check_software.check_torch,
        "jax": check_software.check_jax,
    }
    return tuple(own.get(one.name, partial(_check_installed, one)) for one in frameworks() if one.distributions)


def _check_installed(framework: Framework, facts: SoftwareFacts, _: DeviceFacts) -> Finding:
    found = [f"{name} {facts.installed[name]}" for name in framework.distributions if name in facts.installed]
    return ok(framework.name, ", ".join(found) or "not installed")


_OF_DEVICES: Final[tuple[Check, ...]] = (
    check_devices.check_health,
    check_devices.check_ecc,
    check_devices.check_compute_mode,
    check_devices.check_persistence,
    check_devices.check_slowdown,
    check_devices.check_mig,
    check_devices.check_foreign,
)
"""Checks that a host without devices passes by."""

_CHECKS: Final[tuple[tuple[tuple[str, ...], tuple[Check, ...]], ...]] = (
    (
        ("devices",),
        (
            check_devices.check_driver,
            check_devices.check_cuda_node,
            *_OF_DEVICES,
            check_devices.check_visible_devices,
            check_devices.check_mps,
        ),
    ),
    (
        ("host",),
        (
            check_host.check_memory,
            check_host.check_processes,
            check_host.check_open_files,
        ),
    ),
    (("places",), (check_gpusched.check_state, check_gpusched.check_runtime, check_gpusched.check_leases)),
    (("kept",), (check_gpusched.check_room, check_gpusched.check_logs)),
    (
        ("daemon",),
        (check_gpusched.check_daemon, check_gpusched.check_notifications, check_gpusched.check_linger),
    ),
    (("software",), (check_software.check_python, check_software.check_nvml_binding)),
    (("software", "devices"), framework_checks()),
    (("hook",), (check_software.check_hook,)),
)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings. What could not be read, and a check that fails, is a finding too; it raises nothing."""
    findings = [
        warning(section, f"could not be read: {why}", "gpusched doctor  # once more, when the host is less busy")
        for section, why in facts.failed.items()
    ]
    if facts.settings_problem is not None:
        message, hint = facts.settings_problem
        findings.insert(0, error("settings", message, hint))
    without_devices = facts.devices is not None and not facts.devices.inventory.devices
    for sections, checks in _CHECKS:
        known = [getattr(facts, section) for section in sections]
        if any(section is None for section in known):
            continue
        for check in checks:
            if not (without_devices and check in _OF_DEVICES):
                findings += _findings(check, known)
    return tuple(findings)


def _findings(check: Check, known: list[Any]) -> list[Finding]:
    try:
        found = check(*known)
        return [found] if isinstance(found, Finding) else list(found)
    except Exception as failure:  # noqa: BLE001 (a doctor reports what is wrong, also with itself)
        name = getattr(check, "__name__", "check").removeprefix("check_").replace("_", "-")
        return [warning(name, f"the check failed: {type(failure).__name__}: {failure}", "please report it")]
