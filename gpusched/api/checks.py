"""What is wrong with this host, as `gpusched doctor` finds it."""

import os

import msgspec

import gpusched
from gpusched.doctor.collect import collect
from gpusched.doctor.examine import examine
from gpusched.doctor.facts import Finding
from gpusched.probe.host import host_name

__all__ = ["Diagnosis", "Finding", "doctor"]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on a host: each check with its `state`, "ok", "warning" or "error", and how to mend it."""

    host: str
    version: str
    findings: tuple[Finding, ...]

    @property
    def has_errors(self) -> bool:
        """Whether anything keeps jobs from running, or harms them."""
        return any(finding.state == "error" for finding in self.findings)


def doctor() -> Diagnosis:
    """Check driver, devices, limits, directories, daemon and versions. It takes seconds, and raises nothing."""
    findings = examine(collect(os.environ))
    return Diagnosis(host=host_name(), version=gpusched.__version__, findings=findings)
