"""Checks of the host's limits and clock, against what a job of 33 processes needs. Pure functions."""

from typing import Final

from gpusched.doctor.facts import Finding, HostFacts, error, ok, warning
from gpusched.units import format_mib

__all__ = ["check_cgroup", "check_clock", "check_locked_memory", "check_memory", "check_open_files", "check_processes"]

_PROCESSES: Final = 33  # a learner and 32 actors
_THREADS: Final = 64 * _PROCESSES  # TensorFlow has some tens in each
_MEMORY_MIB: Final = 300 * _PROCESSES  # what importing TensorFlow takes, about
_OPEN_FILES: Final = 1024  # the learner has a few for each actor, TensorFlow hundreds
_LEAST_OPEN_FILES: Final = 256
_LOCKED_KIB: Final = 64


def check_cgroup(facts: HostFacts) -> Finding:
    """Which control groups does the host have?"""
    if facts.cgroup == 0:
        return ok("cgroup", "no control groups: an end for want of memory shows by its signal only")
    return ok("cgroup", f"version {facts.cgroup}")


def check_memory(facts: HostFacts) -> Finding:
    """May all processes together have the memory that they need?"""
    if facts.memory_limit_mib is None:
        return ok("memory-limit", "no limit but the host's memory")
    found = f"the control group may have {format_mib(facts.memory_limit_mib)}"
    if facts.memory_limit_mib >= _MEMORY_MIB:
        return ok("memory-limit", found)
    found += f"; {_PROCESSES} processes with TensorFlow take about {format_mib(_MEMORY_MIB)}"
    cure = f"docker run --memory {_MEMORY_MIB // 1000}g ...  # or fewer processes: --procs 8"
    return warning("memory-limit", found, cure)


def check_processes(facts: HostFacts) -> Finding:
    """May this user have as many processes and threads as a job has?"""
    limits = [limit for limit in (facts.threads_limit, facts.processes) if limit is not None]
    if not limits:
        return ok("processes", "no limit")
    found = f"at most {min(limits)} processes and threads"
    if min(limits) >= _THREADS:
        return ok("processes", found)
    found += f"; {_PROCESSES} processes with TensorFlow have about {_THREADS}"
    if facts.threads_limit == min(limits):
        return warning("processes", found, f"docker run --pids-limit {2 * _THREADS} ...")
    return warning("processes", found, f"ulimit -u {2 * _THREADS}  # for good: nproc in /etc/security/limits.conf")


def check_open_files(facts: HostFacts) -> Finding:
    """May a process have as many files and sockets open as a learner has?"""
    if facts.open_files is None:
        return ok("open-files", "no limit")
    found = f"at most {facts.open_files} in each process"
    if facts.open_files >= _OPEN_FILES:
        return ok("open-files", found)
    found += f"; a learner of {_PROCESSES - 1} actors may have some hundreds"
    allowed = facts.open_files_hard is None or facts.open_files_hard >= _OPEN_FILES
    most = _OPEN_FILES if allowed else facts.open_files_hard
    cure = f"ulimit -n {most}  # for good: nofile in /etc/security/limits.conf"
    report = error if facts.open_files < _LEAST_OPEN_FILES else warning
    return report("open-files", found, cure)


def check_locked_memory(facts: HostFacts) -> Finding:
    """May a process keep memory from being swapped?"""
    if facts.locked_kib is None:
        return ok("locked-memory", "no limit")
    if facts.locked_kib >= _LOCKED_KIB:
        return ok("locked-memory", f"{facts.locked_kib} KiB in each process; CUDA's pinned memory does not count")
    found = f"only {facts.locked_kib} KiB in each process, too little for keys that encrypt a link"
    return warning("locked-memory", found, f"ulimit -l {_LOCKED_KIB}  # for good: memlock in /etc/security/limits.conf")


def check_clock(facts: HostFacts) -> Finding:
    """Is the clock kept to the time of the world? Logs of several hosts, and --at, need that."""
    if facts.synchronised is None:
        return ok("clock", "the kernel does not report whether the clock is kept right")
    if facts.synchronised:
        return ok("clock", "synchronised")
    found = "nothing keeps the clock right, as far as the kernel knows: logs of several hosts will not fit together"
    return warning("clock", found, "sudo timedatectl set-ntp true  # or: sudo apt install chrony")
