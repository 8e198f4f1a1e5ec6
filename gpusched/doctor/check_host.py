"""Checks of the host's limits, against what a job of 33 processes needs. Pure functions."""

from typing import Final

from gpusched.doctor.facts import Finding, HostFacts, error, ok, warning
from gpusched.units import format_mib

__all__ = ["check_memory", "check_open_files", "check_processes"]

_PROCESSES: Final = 33  # a learner and 32 actors
_THREADS: Final = 64 * _PROCESSES  # TensorFlow has some tens in each
_MEMORY_MIB: Final = 300 * _PROCESSES  # what importing TensorFlow takes, about
_OPEN_FILES: Final = 1024  # the learner has a few for each actor, TensorFlow hundreds
_LEAST_OPEN_FILES: Final = 256


def check_memory(facts: HostFacts) -> Finding:
    """May all processes together have the memory that they need?"""
    if facts.memory_limit_mib is None:
        return ok("memory-limit", "no limit but the host's memory")
    found = f"the control group may have {format_mib(facts.memory_limit_mib)}"
    if facts.memory_limit_mib >= _MEMORY_MIB:
        return ok("memory-limit", found)
    found += f"; {_PROCESSES} processes with TensorFlow take about {format_mib(_MEMORY_MIB)}"
    fix = f"docker run --memory {_MEMORY_MIB // 1000}g ...  # or fewer processes: --procs 8"
    return warning("memory-limit", found, fix)


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
    fix = f"ulimit -n {most}  # for good: nofile in /etc/security/limits.conf"
    report = error if facts.open_files < _LEAST_OPEN_FILES else warning
    return report("open-files", found, fix)
