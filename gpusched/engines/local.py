"""The engine `local`: this host. It plans beside what is leased here, takes what is planned, and starts a supervisor.

What `launch` and `join` do at once, and each node of a cluster with its part of a job; see execution/prepare.py.
"""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gpusched.engines.base import Seen
from gpusched.errors import HostFault, NotFound, NotNow
from gpusched.execution.directory import JobDirectory, create
from gpusched.execution.plan_options import plan_beside, read_machine
from gpusched.execution.read_jobs import read_job
from gpusched.linux.files import remove_tree
from gpusched.model.device import Inventory
from gpusched.model.job import JobShard, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan
from gpusched.model.status import JOB_TERMINAL, JobStatus
from gpusched.settings import Settings, places

if TYPE_CHECKING:  # the planner takes its time, and `launch --help` needs none of it
    from gpusched.execution.prepare import Reservation
    from gpusched.leases.directory import LeaseDirectory

__all__ = ["Local", "commands", "give_back", "plan_and_reserve", "plan_now", "start_reserved"]

_PLANNING_PATIENCE_S: Final = 30.0  # many may launch at the same time, and each of them plans for a while


class Local:
    """A job of this host in a `directory` that was made for it; see Engine.

    `part`: which replicas of a larger job they are; None: all of them.
    """

    def __init__(
        self, directory: JobDirectory, submission: Submission, settings: Settings, part: JobShard | None = None
    ) -> None:
        self._directory, self._submission, self._settings, self._part = directory, submission, settings, part

    def submit(self) -> None:
        """Start it now or not at all. Raises what planning raises, and HostFault, too if it still runs, on any host."""
        reserved = plan_and_reserve(self._submission, self._settings, lambda: self._directory, part=self._part)
        start_reserved(reserved, self._submission, self._settings, made=False, part=self._part)

    def poll(self) -> Seen:
        """Return how it is."""
        status = self.status()
        message = status.message if status.state in JOB_TERMINAL else status.note
        return Seen(state=status.state, message=message or "")

    def status(self) -> JobStatus:
        """Return what its supervisor wrote of it."""
        return read_job(self._directory.path)

    def cancel(self, *, kill: bool) -> bool:
        """Ask its supervisor to end it."""
        from gpusched.execution.start import stop

        try:
            stop(self.status(), kill=kill)
        except NotFound:  # it has just ended by itself
            return True
        except HostFault:
            return False
        return True


def plan_and_reserve(
    submission: Submission,
    settings: Settings,
    make: Callable[[], JobDirectory] | None = None,
    *,
    part: JobShard | None = None,
) -> "Reservation":
    """Plan beside what is leased and take what is planned, with no other planner in between.

    `make` makes the job's directory; without it a job of this host gets the next number. Raises what planning raises,
    and HostFault. The devices are read before the lock is taken: a driver that hangs holds up no other launch.
    """
    from gpusched.control.place import private_directory
    from gpusched.execution.measured import measured_here
    from gpusched.execution.prepare import reserve
    from gpusched.leases.directory import lease_directory
    from gpusched.planner import numbered_from

    private_directory(settings.runtime_dir)  # where the job's sockets will lie: before each replica finds it out
    machine = read_machine(submission.machine, settings)
    asked = measured_here(submission, machine[0], settings)
    leases = lease_directory(settings, simulated=machine[0].simulated)
    with leases.locked(_PLANNING_PATIENCE_S):
        plan = _plan_now(leases, asked, machine, settings)
        if part is not None:
            plan = numbered_from(plan, part.first)
        directory = create(settings.state_dir, submission.workload.name) if make is None else make()
        try:
            return reserve(directory, plan, leases)
        except BaseException:
            if make is None:
                remove_tree(directory.path)
            raise


def plan_now(submission: Submission, settings: Settings) -> Plan:
    """Return the plan that plan_and_reserve would follow at this moment: also of a machine that is not here.

    Raises what planning raises, and HostFault.
    """
    from gpusched.execution.measured import measured_here
    from gpusched.leases.directory import lease_directory

    machine = read_machine(submission.machine, settings)
    asked = measured_here(submission, machine[0], settings)
    return _plan_now(lease_directory(settings, simulated=machine[0].simulated), asked, machine, settings)


def commands(plan: Plan, submission: Submission) -> dict[str, tuple[str, ...]]:
    """Return the program and the arguments of each replica that a start of `plan` would have, by its name."""
    from gpusched.planner import replica_specs

    specs = replica_specs(
        plan,
        submission.workload,
        python=submission.python,
        cwd=submission.cwd,
        xla_variable=submission.xla_variable,
        identity=lambda _: {},
    )
    return {spec.replica.name: spec.argv for spec in specs}


def give_back(job: "Reservation") -> None:
    """Give the devices of a job back of which nothing was started, and remove its directory."""
    job.rollback()
    remove_tree(job.directory.path)


def start_reserved(
    job: "Reservation",
    submission: Submission,
    settings: Settings,
    *,
    made: bool = True,
    part: JobShard | None = None,
    spawned: Callable[[int], None] | None = None,
) -> None:
    """Start the job's supervisor, which ends the job with this process. Raises HostFault.

    If it does not come up, its leases are given back.

    A directory in which that has no room, as on a full disk, is removed if it was `made` for this start. `spawned` is
    called with the pid of the guard, a child of this process, before anything is waited for.
    """
    from gpusched.execution.start import this_process

    directory, launched = job.directory, replace(submission, launcher=this_process())
    try:
        job.write(launched, settings, created=time.time(), part=part)
        job.start(os.environ | places(os.environ), spawned)
    except BaseException:
        if _is_cancelled(directory):
            job.rollback()
            if made and not os.path.lexists(directory.status):
                remove_tree(directory.path)
        raise
    finally:
        job.release()


def _plan_now(
    leases: "LeaseDirectory", submission: Submission, machine: tuple[Inventory, tuple[Lease, ...]], settings: Settings
) -> Plan:
    """Return the plan beside the `leases` and those that were saved with the machine."""
    try:
        return plan_beside(leases, submission, machine, settings)
    except NotNow as error:
        raise NotNow(error.message, f"{error.hint}; launch -d lets it wait in the queue") from None


def _is_cancelled(directory: JobDirectory) -> bool:
    from gpusched.execution.start import cancel_start

    try:
        return cancel_start(directory)
    except HostFault:  # where there is no room for guard.lock, no guard starts
        return not os.path.lexists(directory.guard_lock)
