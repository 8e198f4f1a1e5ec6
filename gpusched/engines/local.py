"""The engine `local`: this host. It plans beside what is leased here, takes what is planned, and starts a supervisor.

What `launch` and `join` do at once, and each node of a cluster with its part of a job. (The daemon does the same in
steps that it can be killed between: daemon/starting_jobs.py.)
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpusched.engines.base import Seen, Stage
from gpusched.errors import HostFault, NotFound
from gpusched.execution.directory import JobDirectory, create, read_job
from gpusched.execution.plan_options import PlanOptions, xla_variable
from gpusched.execution.spec import JobSpec
from gpusched.linux.files import remove_tree
from gpusched.model.job import JobShard, Network
from gpusched.model.plan import Plan
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.model.workload import Workload
from gpusched.settings import Settings, places

if TYPE_CHECKING:
    from gpusched.leases.directory import LeaseHandle

__all__ = ["Asked", "Committed", "Local", "commit", "start_committed", "stop_gently"]

_PLANNING_PATIENCE_S: Final = 30.0  # many may launch at the same time, and each of them plans for a while
_STAGES: Final[dict[JobState, Stage]] = {
    JobState.QUEUED: "waiting",
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.LOST: "lost",
}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to start: a workload under its `options` (JSON), where and how often, and its place among hosts.

    `part`: which replicas of a larger job they are; None: all of them.
    """

    workload: Workload
    options: bytes
    wish: PlanOptions
    network: Network | None = None
    part: JobShard | None = None


class Committed(NamedTuple):
    """A job whose plan is made and whose leases are held by this process. `made`: its directory is of this start."""

    directory: JobDirectory
    plan: Plan
    hold: "LeaseHandle"
    made: bool = False


class Local:
    """A job of this host in a `directory` that was made for it; see Engine."""

    def __init__(self, directory: JobDirectory, asked: Asked, settings: Settings) -> None:
        self._directory, self._asked, self._settings = directory, asked, settings

    def submit(self) -> None:
        """Start it now or not at all. Raises what planning raises, and HostFault, too if it still runs, on any host."""
        start_committed(commit(self._asked, self._settings, lambda: self._directory), self._asked, self._settings)

    def poll(self) -> Seen:
        """Return how it is."""
        return _seen(self.status())

    def status(self) -> JobStatus:
        """Return what its supervisor says of it."""
        return read_job(self._directory.path)

    def cancel(self, *, kill: bool) -> bool:
        """Ask its supervisor to end it."""
        from gpusched.execution.orders import StopOrder, give

        try:
            give(self.status(), StopOrder(kill=kill))
        except NotFound:  # it has just ended by itself
            return True
        except HostFault:
            return False
        return True


def commit(asked: Asked, settings: Settings, make: Callable[[], JobDirectory] | None = None) -> Committed:
    """Plan beside what is leased and take what is planned, with nobody else doing so in between.

    `make` makes the job's directory; without it a job of this host gets the next number. Raises what planning raises,
    and HostFault. The devices are read before: a driver that hangs holds up nobody else.
    """
    from gpusched.control.place import private_directory
    from gpusched.execution.known_leases import running_leases
    from gpusched.execution.lease_usage import current_leases
    from gpusched.leases.directory import lease_directory, leases_of_plan
    from gpusched.planner import numbered_from

    private_directory(settings.runtime_dir)  # where the job's sockets will lie: before each replica finds it out
    inventory, saved = asked.wish.look(settings)
    leases = lease_directory(settings, simulated=inventory.simulated)
    with leases.locked(_PLANNING_PATIENCE_S):
        held = (*saved, *current_leases(leases, inventory, partial(running_leases, settings.state_dir)))
        plan = asked.wish.plan_now(held, asked.workload, inventory, settings)
        if asked.part is not None:
            plan = numbered_from(plan, asked.part.first)
        directory = create(settings.state_dir, asked.workload.name) if make is None else make()
        job = directory.path.name
        try:
            hold = leases.commit(job, leases_of_plan(plan, job), directory.path)
        except BaseException:
            if make is None:
                remove_tree(directory.path)
            raise
        return Committed(directory, plan, hold, made=make is None)


def start_committed(job: Committed, asked: Asked, settings: Settings) -> int:
    """Start the job's supervisor and return the pid of its guard, a child of this process.

    If it does not come up, its leases are given back. Raises HostFault.

    A directory in which that could not be left, as on a full disk, is removed.
    """
    from gpusched.execution.start import await_supervisor, prepare, spawn

    directory, plan, hold, made = job
    try:
        if asked.network is not None:
            from gpusched.execution.network import prepare_network

            prepare_network(directory, asked.workload.name, asked.options, asked.network)
        spec = _spec(directory, asked, plan, settings)
        guard = spawn(directory, prepare(directory, spec), os.environ | places(os.environ))
        await_supervisor(directory, guard, spec)
    except BaseException:
        if _called_off(directory):
            hold.rollback()
            if made and not os.path.lexists(directory.status):
                remove_tree(directory.path)
        raise
    finally:
        hold.release()
    return guard


def _called_off(directory: JobDirectory) -> bool:
    from gpusched.execution.start import cancel_start

    try:
        return cancel_start(directory)
    except HostFault:  # where there is no room for guard.lock, no guard starts
        return not os.path.lexists(directory.guard_lock)


def stop_gently(directory: JobDirectory) -> None:
    """Ask a job's supervisor to stop it; a second request kills. Raises HostFault."""
    from gpusched.execution.orders import StopOrder, give
    from gpusched.execution.start import stop

    status = read_job(directory.path)
    with suppress(NotFound):  # it has just ended by itself
        if status.supervisor_pid is None:
            give(status, StopOrder())
        else:
            stop(status)


def _spec(directory: JobDirectory, asked: Asked, plan: Plan, settings: Settings) -> JobSpec:
    from gpusched.execution.expand import job_spec
    from gpusched.execution.start import this_process

    return job_spec(
        directory,
        asked.workload,
        plan,
        options=asked.options,
        python=sys.executable,
        cwd=_here(),
        xla_variable=xla_variable(),
        settings=settings,
        launcher=this_process(),
        created=time.time(),
        network=asked.network,
        part=asked.part,
    )


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise HostFault(f"the working directory: {error.strerror}", "change to one that exists") from None


def _seen(status: JobStatus) -> Seen:
    stage = _STAGES.get(status.state, "running")
    return Seen(stage=stage, message=(status.message or "") if status.state in JOB_TERMINAL else (status.note or ""))
