"""A launch step by step: what it will be, what a person should know of it, and the ways to begin it.

launch, submit, dry_run and join take these steps at once.
"""

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from gpusched.api.arguments import (
    Begins,
    LaunchArguments,
    ListenArguments,
    SubmitArguments,
    cluster_options,
    follows,
    queue_fields,
    require_no_queue,
    require_types,
    with_arguments,
)
from gpusched.api.handle import Job
from gpusched.api.plan_arguments import plan_options, require_known
from gpusched.api.planning import DryRun, Plan
from gpusched.api.queue import submit
from gpusched.api.validation import require_type
from gpusched.api.workloads import Options, WorkloadName, named_workload, own_options
from gpusched.engines.cluster.options import engine_of
from gpusched.errors import GpuschedError, UsageError
from gpusched.execution.active_python import with_active_python
from gpusched.execution.workload_options import configured_by
from gpusched.model.job import Listening, Submission
from gpusched.settings import LOCAL, Settings, load_settings

if TYPE_CHECKING:  # the planner and the engines take their time, and `launch --help` needs none of them
    from collections.abc import Mapping

    from gpusched.api.clusters import ClusterPlan
    from gpusched.execution.prepare import Reservation
    from gpusched.execution.workload_options import Configured
    from gpusched.model import plan as model

__all__ = ["Launch", "Reserved", "dry_run", "prepare", "prepared_here"]

_GUARD_PATIENCE_S: Final = 5.0


class Launch:
    """A job whose arguments are checked, and of which nothing has begun."""

    def __init__(
        self,
        job: Submission,
        settings: Settings,
        queue: "Mapping[str, Any]",
        notices: tuple[str, ...] = (),
        cluster: "ClusterPlan | None" = None,
        *,
        begins: Begins,
    ) -> None:
        self._job, self._queue, self._begins = job, queue, begins
        self.settings: Final = settings
        self.network: Final = job.network
        self.notices: Final = notices
        """What a person should know before it begins."""
        self.cluster: Final = cluster
        """What would be submitted to a cluster; None for a job of this host."""

    def dry_run(self) -> DryRun:
        """Return what `start` would do. Raises what it would raise at this moment: NeverFits, NotNow, HostFault.

        Raises UsageError for a job of a cluster, whose plan is `cluster`.
        """
        if self.cluster is not None:
            message = f"{self.cluster.job.engine} is a cluster: dry_run is of a launch on this host"
            raise UsageError(message, "see gpusched.api.clusters.plan_on_cluster")
        from gpusched.engines.local import commands, plan_now

        plan = plan_now(self._job, self.settings)
        return DryRun(plan=Plan.of(plan), commands=commands(plan, self._job))

    def submission(self) -> Submission:
        """Return what the daemon's queue gets of it. Raises UsageError, too if it was prepared to "never" begin."""
        self._require_begin("now", "later")
        from gpusched.execution.submission import queued

        return queued(self._job, self._queue)

    def submit(self) -> Job:
        """Put it into the queue of the daemon, which is started if there is none.

        Raises UsageError as `submission` does, NeverFits, NoDaemon and HostFault.
        """
        submitted = submit(self.submission(), settings=self.settings)
        found, warnings = submitted.job, (*self._warnings(), *submitted.warnings)
        return Job(found.id, Path(found.run_dir), how_to_join=self.how_to_join(found.id), warnings=warnings)

    def reserve(self) -> "Reserved":
        """Take the devices now or not at all.

        Raises UsageError for QueueArguments and if it was prepared to begin later or never; NeverFits, NotNow and
        HostFault.
        """
        self._require_begin("now")
        require_no_queue(self._queue)
        from gpusched.engines.local import give_back, plan_and_reserve

        reservation = plan_and_reserve(self._job, self.settings)
        try:
            return Reserved(self._job, reservation, self.settings, self._warnings())
        except BaseException:
            give_back(reservation)
            raise

    def start(self) -> Job:
        """Start it now or not at all. It ends when this process ends. Raises what `reserve` raises."""
        reserved = self.reserve()
        try:
            return reserved.start()
        except BaseException:  # such as KeyboardInterrupt: without a handle nothing may run
            reserved.abandon()
            raise

    def how_to_join(self, job: str) -> tuple[str, ...]:
        """Return the lines to run on another host to join that job once it runs; none if it does not listen."""
        return _how_to_join(self._job, self.settings, job, None)

    def _warnings(self) -> tuple[str, ...]:
        return self.notices if self.cluster is None else (*self.notices, *self.cluster.warnings)

    def _require_begin(self, *possible: Begins) -> None:
        """Raise UsageError where what such a begin needs was not checked."""
        if self._begins not in possible:
            hint = f"prepare it with begins={' or begins='.join(map(repr, possible))}"
            raise UsageError(f"begins={self._begins!r}: it was not checked for this", hint)


class Reserved:
    """A job that has its devices and no process yet: `start` it or `cancel` it. The end of this process cancels it."""

    def __init__(
        self, launched: Submission, reservation: "Reservation", settings: Settings, known: tuple[str, ...]
    ) -> None:
        from gpusched.execution.requirements import launch_warnings

        self._launched, self._reservation, self._settings = launched, reservation, settings
        self._reaper: threading.Thread | None = None
        directory = reservation.directory.path
        self.plan: Final = reservation.plan
        lines = _how_to_join(launched, settings, directory.name, self.plan)
        self.warnings: Final = launch_warnings(self.plan, launched.workload, settings)
        """What a person should know of this plan."""
        warnings = (*known, *self.warnings)
        self.job: Final = Job(directory.name, directory, launched=True, how_to_join=lines, warnings=warnings)

    def start(self) -> Job:
        """Start its processes, once. Raises HostFault, and what it needs of another host NotFound and UsageError."""
        from gpusched.engines.local import start_reserved

        start_reserved(self._reservation, self._launched, self._settings, spawned=self._reap_later)
        return self.job

    def cancel(self) -> None:
        """Give the devices back; no job is left. Raises UsageError once it was started."""
        from gpusched.engines.local import give_back

        if self._reaper is not None:
            raise UsageError(f"{self.job.id} has been started", "stop it instead")
        give_back(self._reservation)

    def abandon(self) -> None:
        """End without grace what a `start` that raised has begun. A job of which nothing began is removed."""
        from gpusched.engines.local import give_back
        from gpusched.execution.start import abandon

        with suppress(GpuschedError):
            if abandon(self._reservation.directory):
                give_back(self._reservation)

    def clear(self) -> None:
        """Wait until no process of the ended job is left, unless one cannot be killed, and remove its socket.

        Not if the directory was removed under a job that runs: it is the end of this process that ends such a job.
        """
        from gpusched.execution.expand import job_socket
        from gpusched.execution.learner_socket import remove_socket

        deadline = time.monotonic() + _GUARD_PATIENCE_S  # the guard goes last
        while self._reaper and self._reaper.is_alive() and self.job.run_dir.exists() and time.monotonic() < deadline:
            self._reaper.join(0.01)
        remove_socket(job_socket(self._settings, self.job.run_dir))

    def _reap_later(self, guard: int) -> None:
        """Wait in a thread for a guard that this process started, so that no zombie stays."""
        self._reaper = threading.Thread(target=_reap, args=(guard,), name=f"reap-{guard}", daemon=True)
        self._reaper.start()


@with_arguments(SubmitArguments)
def prepare(
    workload: WorkloadName,
    *,
    options: Options | None = None,
    begins: Begins = "now",
    **given: Unpack[SubmitArguments],
) -> Launch:
    """Check the arguments of launch and submit, and return what they would begin. Nothing is taken and nothing runs.

    `begins` "later" is for `submit`, "never" for `dry_run`, and "now" for all. Raises UsageError, and HostFault for
    what it needs and is not here; on a cluster NeverFits.
    """
    require_type(begins, Begins, "begins")
    require_known(given, SubmitArguments)
    require_types(given, ListenArguments)
    settings, queue = load_settings(os.environ), queue_fields(given)
    picked = with_active_python(named_workload(workload), os.environ)
    chosen = configured_by(picked.workload, own_options(options))
    cluster = cluster_options(given)
    engine = engine_of(cluster, chosen.workload, settings)
    if engine != LOCAL:
        return _on_cluster(engine, chosen, given, queue, settings, begins)
    notice = picked.notice()
    return prepared_here(chosen, given, settings, begins=begins, notices=() if notice is None else (notice,))


def prepared_here(
    chosen: "Configured",
    given: "Mapping[str, Any]",
    settings: Settings,
    *,
    begins: Begins,
    notices: tuple[str, ...] = (),
) -> Launch:
    """Return what would begin on this host of a workload under its options; `given` as for prepare, which see."""
    queue = queue_fields(given)
    job = _here(chosen, given, settings, follows=follows(queue), begins=begins)
    return Launch(job, settings, queue, notices, begins=begins)


@with_arguments(LaunchArguments)
def dry_run(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[LaunchArguments]) -> DryRun:
    """Return what launch would start at this moment, or raise what it would raise. Nothing is started.

    Raises UsageError for a cluster, too: see gpusched.api.clusters.plan_on_cluster.
    """
    require_known(given, LaunchArguments)
    return prepare(workload, options=options, begins="never", **given).dry_run()


def _here(
    chosen: "Configured", given: "Mapping[str, Any]", settings: Settings, *, follows: bool, begins: Begins
) -> Submission:
    from gpusched.execution.expand import require_short_socket
    from gpusched.execution.requirements import require_modules, require_programs
    from gpusched.execution.submission import workload_submission

    wish = plan_options(given).here(settings)
    require_modules(chosen.workload)
    if not follows:  # what goes before may still make the programs
        require_programs(chosen.workload)
    require_short_socket(chosen.workload, settings)
    listen, insecure = given.get("listen"), bool(given.get("insecure"))
    if listen is None:
        if insecure:
            raise UsageError("--insecure belongs to --listen", "add --listen tcp://127.0.0.1:PORT, or leave it out")
        return workload_submission(chosen.workload, chosen.options, wish)
    from gpusched.execution.listening import listening  # most launches stay on one host

    network = listening(chosen.workload, listen, insecure=insecure, at_once=begins != "later")
    return workload_submission(chosen.workload, chosen.options, wish._replace(least_procs=0), network)


def _on_cluster(
    engine: str,
    chosen: "Configured",
    given: "Mapping[str, Any]",
    queue: "Mapping[str, Any]",
    settings: Settings,
    begins: Begins,
) -> Launch:
    from gpusched.api.clusters import planned
    from gpusched.engines.cluster.prepare import driver_job

    for name in ("listen", "insecure"):
        if given.get(name):
            raise UsageError(f"--{name} is for a launch on this host, not on {engine}", f"leave --{name} out")
    plan = planned(engine, chosen, given, settings, begins=begins)
    return Launch(driver_job(plan.job), settings, queue, cluster=plan, begins=begins)


def _how_to_join(launched: Submission, settings: Settings, job: str, plan: "model.Plan | None") -> tuple[str, ...]:
    """Return the lines to join a job with as many actors as are planned here, without a plan as were asked for."""
    if not isinstance(launched.network, Listening):
        return ()
    from gpusched.execution.listening import how_to_join
    from gpusched.execution.plans import request_of
    from gpusched.planner import counted_role

    role = counted_role(launched.workload)
    asked = sum(one.count for one in request_of(launched).roles if one.name == role)
    count = asked if plan is None else sum(one.role == role for one in plan.replicas)
    procs = "max" if plan is None and launched.maximise else str(count)
    return tuple(how_to_join(launched.network, settings.state_dir / "jobs" / job, procs))


def _reap(guard: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(guard, 0)
