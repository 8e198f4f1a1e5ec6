"""The one way from a plan to a running job, for `launch`, `join`, the daemon and each node of a cluster.

Each step may be the last before a kill -9 (docs/decisions/0008-jobs-outlive-the-daemon.md):

    reserve     the lease file, whose byte 0 this process holds      died here: the lease lapses
    write       spec.json, and guard.lock with a fresh nonce         died here: no guard knows the nonce
    spawn       a guard that knows the nonce                         died here: the guard has the nonce and the lease,
                                                                     or finds the lease lapsed and starts nothing
    release     status.json names the supervisor; byte 0 is let go

The daemon saves the state `starting` between write and spawn: the next daemon cancels a start that was not spawned.
"""

from collections.abc import Callable, Mapping

from gpusched.execution.directory import JobDirectory
from gpusched.execution.expand import job_spec
from gpusched.execution.network import prepare_network
from gpusched.execution.spec import JobSpec
from gpusched.execution.start import await_supervisor, prepare, spawn
from gpusched.leases.directory import LeaseDirectory, LeaseHandle, leases_of_plan
from gpusched.model.job import JobShard, Submission
from gpusched.model.plan import Plan
from gpusched.settings import Settings

__all__ = ["Reservation", "reserve"]


class Reservation:
    """Shares of devices that this process holds for a job until its guard has them; see `reserve`."""

    def __init__(self, directory: JobDirectory, plan: Plan, lease: LeaseHandle) -> None:
        self.directory, self.plan = directory, plan
        self.nonce = ""
        """What the guard of the written attempt must know; "" before `write`."""
        self._lease = lease
        self._spec: JobSpec | None = None

    def write(
        self,
        submission: Submission,
        settings: Settings,
        *,
        created: float,
        attempt: int = 0,
        attached: bool = False,
        part: JobShard | None = None,
    ) -> None:
        """Write what is to run, and the nonce of the attempt; if that fails, the shares are given back.

        `attached`: the launcher of the submission starts the guard itself. `part`: the replicas are not all of a job's.
        Raises HostFault, and for a job that works with another host NotFound and UsageError.
        """
        try:
            prepare_network(self.directory, submission.workload.name, submission.options, submission.network)
            self._spec = job_spec(
                self.directory,
                submission,
                self.plan,
                settings,
                created=created,
                attempt=attempt,
                attached=attached,
                part=part,
            )
            self.nonce = prepare(self.directory, self._spec)
        except BaseException:
            self.rollback()
            raise

    def start(self, environ: Mapping[str, str], spawned: Callable[[int], None] | None = None) -> None:
        """Spawn the guard, call `spawned` with its pid, and wait for its supervisor. Raises HostFault."""
        if self._spec is None:
            raise AssertionError("a start before what is to run was written")
        guard = spawn(self.directory, self.nonce, environ)
        if spawned is not None:
            spawned(guard)
        await_supervisor(self.directory, guard, self._spec)

    def release(self) -> None:
        """Leave the shares to the guard, which has them now. Safe to call twice."""
        self._lease.release()

    def rollback(self) -> None:
        """Give the shares back: nothing was started on them, and nothing will be (start.cancel_start)."""
        self._lease.rollback()


def reserve(directory: JobDirectory, plan: Plan, leases: LeaseDirectory) -> Reservation:
    """Take the shares of `plan` for the job in `directory`; `leases` must be locked. Raises HostFault."""
    job = directory.path.name
    return Reservation(directory, plan, leases.commit(job, leases_of_plan(plan, job), directory.path))
