"""The engine `local`: this host. It plans beside what is leased here, takes what is planned, and starts a supervisor.

What `launch` and `join` do at once, and each node of a cluster with its part of a job; see execution/prepare.py.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from gpusched.engines.base import Seen
from gpusched.errors import HostFault, NotFound
from gpusched.execution.directory import JobDirectory, create
from gpusched.execution.plan_options import PlanOptions, xla_variable
from gpusched.execution.read_jobs import read_job
from gpusched.linux.files import remove_tree
from gpusched.model.device import Inventory
from gpusched.model.job import JobShard, Network, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.model.workload import Workload
from gpusched.settings import Settings, places

if TYPE_CHECKING:  # the planner takes its time, and `launch --help` needs none of it
    from gpusched.execution.prepare import Reservation
    from gpusched.leases.directory import LeaseDirectory

__all__ = ["Asked", "Local", "commands", "give_back", "plan_and_reserve", "plan_now", "start_reserved"]

_PLANNING_PATIENCE_S: Final = 30.0  # many may launch at the same time, and each of them plans for a while


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to start: a workload under its `options` (JSON), where and how often, and its place among hosts.

    `part`: which replicas of a larger job they are; None: all of them.
    """

    workload: Workload
    options: bytes
    wish: PlanOptions
    network: Network | None = None
    part: JobShard | None = None


class Local:
    """A job of this host in a `directory` that was made for it; see Engine."""

    def __init__(self, directory: JobDirectory, asked: Asked, settings: Settings) -> None:
        self._directory, self._asked, self._settings = directory, asked, settings

    def submit(self) -> None:
        """Start it now or not at all. Raises what planning raises, and HostFault, too if it still runs, on any host."""
        reserved = plan_and_reserve(self._asked, self._settings, lambda: self._directory)
        start_reserved(reserved, self._asked, self._settings, made=False)

    def poll(self) -> Seen:
        """Return how it is."""
        status = self.status()
        message = status.message if status.state in JOB_TERMINAL else status.note
        return Seen(state=status.state, message=message or "")

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


def plan_and_reserve(asked: Asked, settings: Settings, make: Callable[[], JobDirectory] | None = None) -> "Reservation":
    """Plan beside what is leased and take what is planned, with no other planner in between.

    `make` makes the job's directory; without it a job of this host gets the next number. Raises what planning raises,
    and HostFault. The devices are read before the lock is taken: a driver that hangs holds up no other launch.
    """
    from gpusched.control.place import private_directory
    from gpusched.execution.prepare import reserve
    from gpusched.leases.directory import lease_directory
    from gpusched.planner import numbered_from

    private_directory(settings.runtime_dir)  # where the job's sockets will lie: before each replica finds it out
    machine = asked.wish.read_machine(settings)
    leases = lease_directory(settings, simulated=machine[0].simulated)
    with leases.locked(_PLANNING_PATIENCE_S):
        plan = _plan_beside(leases, machine, asked, settings)
        if asked.part is not None:
            plan = numbered_from(plan, asked.part.first)
        directory = create(settings.state_dir, asked.workload.name) if make is None else make()
        try:
            return reserve(directory, plan, leases)
        except BaseException:
            if make is None:
                remove_tree(directory.path)
            raise


def plan_now(asked: Asked, settings: Settings) -> Plan:
    """Return the plan that plan_and_reserve would follow at this moment: also of a machine that is not here.

    Raises what planning raises, and HostFault.
    """
    from gpusched.leases.directory import lease_directory

    machine = asked.wish.read_machine(settings)
    return _plan_beside(lease_directory(settings, simulated=machine[0].simulated), machine, asked, settings)


def commands(plan: Plan, asked: Asked) -> dict[str, tuple[str, ...]]:
    """Return the program and the arguments of each replica that a start of `plan` would have, by its name."""
    from gpusched.planner import replica_specs

    cwd = os.getcwd()  # noqa: PTH109 (a text is wanted)
    variable = xla_variable()
    specs = replica_specs(
        plan, asked.workload, python=sys.executable, cwd=cwd, xla_variable=variable, identity=lambda _: {}
    )
    return {spec.replica.name: spec.argv for spec in specs}


def give_back(job: "Reservation") -> None:
    """Give the devices of a job back of which nothing was started, and remove its directory."""
    job.rollback()
    remove_tree(job.directory.path)


def start_reserved(
    job: "Reservation",
    asked: Asked,
    settings: Settings,
    *,
    made: bool = True,
    spawned: Callable[[int], None] | None = None,
) -> None:
    """Start the job's supervisor; if it does not come up, its leases are given back. Raises HostFault.

    A directory in which that has no room, as on a full disk, is removed if it was `made` for this start. `spawned` is
    called with the pid of the guard, a child of this process, before anything is waited for.
    """
    directory = job.directory
    try:
        job.write(_submission(asked), settings, created=time.time(), part=asked.part)
        job.start(os.environ | places(os.environ), spawned)
    except BaseException:
        if _is_cancelled(directory):
            job.rollback()
            if made and not os.path.lexists(directory.status):
                remove_tree(directory.path)
        raise
    finally:
        job.release()


def _plan_beside(
    leases: "LeaseDirectory", machine: tuple[Inventory, tuple[Lease, ...]], asked: Asked, settings: Settings
) -> Plan:
    """Return the plan beside the `leases` and those that were saved with the machine."""
    from gpusched.execution.known_leases import running_leases
    from gpusched.execution.lease_usage import current_leases

    inventory, saved = machine
    held = (*saved, *current_leases(leases, inventory, partial(running_leases, settings.state_dir)))
    return asked.wish.plan_now(held, asked.workload, inventory, settings)


def _is_cancelled(directory: JobDirectory) -> bool:
    from gpusched.execution.start import cancel_start

    try:
        return cancel_start(directory)
    except HostFault:  # where there is no room for guard.lock, no guard starts
        return not os.path.lexists(directory.guard_lock)


def _submission(asked: Asked) -> Submission:
    """Return what is to run as this process would submit it: it is the launcher, which the job must not outlive."""
    from gpusched.execution.start import this_process
    from gpusched.execution.submission import working_directory

    return replace(
        asked.wish.submission(asked.workload),
        options=asked.options,
        cwd=working_directory(),
        python=sys.executable,
        xla_variable=xla_variable(),
        network=asked.network,
        launcher=this_process(),
    )
