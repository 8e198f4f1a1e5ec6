"""Checks of gpusched's own directories and of its daemon. Pure functions."""

import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gpusched.doctor.facts import DaemonFacts, Finding, KeptFacts, Place, PlaceFacts, error, ok, warning
from gpusched.units import format_mib, number

__all__ = [
    "check_daemon",
    "check_leases",
    "check_linger",
    "check_logs",
    "check_notifications",
    "check_room",
    "check_runtime",
    "check_state",
]

_LITTLE_MIB, _TOO_LITTLE_MIB = 1024, 64
_SHARED: Final = "/run/gpusched"
_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "fuse.sshfs", "afs")
_MAKE_SHARED: Final = (
    f"echo 'd {_SHARED} 1777 root root -' | sudo tee /etc/tmpfiles.d/gpusched.conf; sudo systemd-tmpfiles --create"
)


def check_state(facts: PlaceFacts) -> Finding:
    """Can jobs, logs and the queue be kept?"""
    place, name = facts.state, "state-directory"
    if (trouble := _trouble(place, facts.user, name, "GPUSCHED_STATE_DIR")) is not None:
        return trouble
    if place.mode is not None and place.mode & 0o022:
        return error(name, f"{place.path}: other users may write there", f"chmod go-w {place.path}")
    if place.free_mib is not None and place.free_mib < _LITTLE_MIB:
        found = f"{place.path}: {format_mib(place.free_mib)} free, for logs and results"
        fix = f"du -sh {place.path}/jobs/* | sort -h | tail  # and remove what is not needed"
        return error(name, found, fix) if place.free_mib < _TOO_LITTLE_MIB else warning(name, found, fix)
    if place.filesystem in _NETWORK:
        found = f"{place.path} is on {place.filesystem}: locks and SQLite's journal are not safe between hosts there"
        return warning(name, found, "export GPUSCHED_STATE_DIR=/var/tmp/gpusched-$USER  # on a disk of this host")
    made = "" if place.mode is not None else "; it is made by the first job"
    free = "" if place.free_mib is None else f", {format_mib(place.free_mib)} free"
    return ok(name, f"{place.path}{free}{made}")


def check_runtime(facts: PlaceFacts) -> Finding:
    """Can sockets be where only this user can reach them?"""
    place, name = facts.runtime, "runtime-directory"
    if facts.control_problem is not None:
        return error(name, facts.control_problem, "export GPUSCHED_RUNTIME_DIR=/tmp/g-$USER")
    if (trouble := _trouble(place, facts.user, name, "GPUSCHED_RUNTIME_DIR")) is not None:
        return trouble
    if place.mode is not None and place.mode & 0o077:
        return error(name, f"{place.path} is open to other users", f"chmod 700 {place.path}")
    return ok(name, place.path if place.mode is not None else f"{place.path}; it is made by the first job")


def check_leases(facts: PlaceFacts) -> Finding:
    """Do the jobs of all users of this host know of each other's shares?"""
    place, name = facts.leases, "lease-directory"
    inside = Path(place.path).is_relative_to(facts.runtime.path)
    if place.mode is None and inside:
        return _own(place, name)
    if not place.writable:
        return error(name, f"{place.path} cannot be written", f"sudo chmod 1777 {place.path}")
    if place.mode is not None and place.mode & 0o022 and not place.mode & stat.S_ISVTX:
        return error(name, f"{place.path} lets users remove each other's leases", f"sudo chmod 1777 {place.path}")
    if place.owner not in (None, 0, facts.user):
        return error(name, f"{place.path} belongs to user {place.owner}", f"sudo chown root: {place.path}")
    if place.mode is not None and place.mode & 0o002:
        return ok(name, f"{place.path}: the jobs of all users of this host see each other's leases")
    return _own(place, name)


def check_room(facts: KeptFacts) -> Finding:
    """How much do jobs take, and what could be removed?"""
    least = "" if facts.whole else "at least "
    logs, results = format_mib(facts.logs_mib), format_mib(facts.results_mib)
    parts = [f"{least}{number(facts.jobs, 'job')}: logs {logs}, results {results}"]
    if facts.kept_results_mib:
        parts.append(f"results of removed jobs {format_mib(facts.kept_results_mib)}")
    if facts.undeleted_mib:
        parts.append(f"{format_mib(facts.undeleted_mib)} of removed jobs are not deleted yet: {facts.removed}")
    if facts.old_jobs:
        parts.append(f"{facts.old_jobs} ended over 30 days ago, with {format_mib(facts.old_mib)}")
    fix = 'gpusched prune --older 30d --keep-results  # or by itself: keep_jobs = "30d" in the configuration'
    return ok("room", "; ".join(parts), fix if facts.old_jobs and not facts.removes_jobs else "")


def check_logs(facts: KeptFacts) -> Finding:
    """Were logs cut, as they had grown beyond what one may hold?"""
    cap = f"each may hold {format_mib(facts.log_cap_mib)}" if facts.log_cap_mib else "each may hold any amount"
    kept = ", and keep_logs has old ones removed" if facts.removes_logs else ""
    if not facts.cut_logs:
        return ok("logs", f"no log was cut; {cap}{kept}")
    named = ", ".join(f"{name} ({format_mib(mib)})" for name, mib in facts.cut)
    more = f" and {facts.cut_logs - len(facts.cut)} more" if facts.cut_logs > len(facts.cut) else ""
    fix = f'log_cap = "{2 * facts.log_cap_mib}MiB"  # in the configuration, for later jobs' if facts.log_cap_mib else ""
    found = f"{number(facts.cut_logs, 'log')} cut in the middle: {named}{more}; {cap}{kept}"
    return ok("logs", found, fix)


def check_daemon(facts: DaemonFacts) -> Iterable[Finding]:
    """Does it run, does it answer, is it this version, and what ails it?"""
    if facts.pid is None:
        yield ok("daemon", "does not run; the first command that needs it starts it")
        return
    who = f"process {facts.pid}"
    if facts.silence is not None:
        yield error("daemon", facts.silence, facts.silence_fix or "gpusched daemon stop --kill; gpusched daemon start")
    elif facts.daemon_version != facts.version:
        found = f"{who} is gpusched {facts.daemon_version}, and this is {facts.version}"
        yield warning("daemon", found, "gpusched daemon stop; gpusched daemon start  # jobs go on")
    else:
        how = f"in {facts.unit}" if facts.unit else "started by hand"
        dropped = f"; it dropped {facts.malformed} messages that it did not understand" if facts.malformed else ""
        yield ok("daemon", f"{who}, version {facts.daemon_version}, {how}{dropped}")
    for problem in facts.problems:
        yield warning("daemon", problem, f"tail {facts.log}")


def check_notifications(facts: DaemonFacts) -> Finding:
    """Do notifications arrive?"""
    name, failed = "notifications", facts.undelivered
    if not facts.daemon_version:
        return ok(name, "no daemon answers, which would have them")
    if failed is None:
        return ok(name, "none waits that could not be delivered")
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(failed.since))
    found = f"{failed.waiting} could not be delivered yet, {failed.given_up} were given up, since {since}"
    return warning(name, f"{found}: {failed.reason}", "gpusched notify test")


def check_linger(facts: DaemonFacts) -> Finding:
    """Do daemon and jobs outlive the last login of this user?"""
    if not facts.systemd or facts.is_root:
        return ok("linger", "this user's processes do not depend on a login")
    if facts.lingers:
        return ok("linger", "this user's services outlive the last login")
    found = "this user's services, and the jobs that they started, end with the last login"
    return warning("linger", found, f"sudo loginctl enable-linger {facts.user_name}")


def _trouble(place: Place, user: int, name: str, variable: str) -> Finding | None:
    """Return what keeps a directory from being this user's."""
    if place.mode is not None and not stat.S_ISDIR(place.mode):
        return error(name, f"{place.path} is no directory", f"mv {place.path} {place.path}.old")
    if place.owner not in (None, user):
        found = f"{place.path} belongs to user {place.owner}"
        return error(name, found, f"export {variable}=DIR  # one of yours; or: sudo chown -R {user} {place.path}")
    if not place.writable:
        what = "cannot be written" if place.mode is not None else "is not there and cannot be made"
        return error(name, f"{place.path} {what}", f"export {variable}=DIR  # one that you may write")
    return None


def _own(place: Place, name: str) -> Finding:
    found = f"{place.path}: only this user's jobs see each other's leases; of other users, what their processes hold"
    return ok(name, found, f"{_MAKE_SHARED}  # where several users share the devices")
