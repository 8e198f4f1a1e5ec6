"""What a workload's roles need, by a short run of one replica of each: what to write into its workload.toml."""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from gpusched.api.arguments import span_text
from gpusched.api.launching import prepare
from gpusched.api.plan_arguments import require_known, with_signature
from gpusched.api.workloads import Options, WorkloadName, chosen_workload, named_workload
from gpusched.errors import HostFault, JobFailed, UsageError
from gpusched.model.fit import RoleFit, role_fits
from gpusched.model.status import JobState, JobStatus, is_out_of_time
from gpusched.settings import HERE, LOCAL, load_settings
from gpusched.times import parse_span

if TYPE_CHECKING:
    from gpusched.api.handle import Job
    from gpusched.model.workload import Workload

__all__ = ["Fit", "FitArguments", "FitRun", "begin", "fit"]

_USUAL: Final = "1m"


class FitArguments(TypedDict, total=False):
    """How long it runs, with how many actors, and where."""

    time: float | str
    """How long it runs, from the start of its processes; "1m" where none is given."""
    procs: int | None
    """How many actors, where their number changes what others need; one where none is given."""
    gpus: str | None
    """Only these devices, as of plan."""
    exclude_gpus: str | None
    """All devices but these."""
    ignore_foreign: int | str | None
    """Processes of no job to plan over, as of plan."""


class Fit:
    """What each role of a workload took in a run of `seconds`. It prints as a table, and what to write into the file.

    `workload` is as its file has it. `roles`: those whose replicas began.
    """

    def __init__(self, workload: "Workload", job: JobStatus) -> None:
        self.workload: Final = workload
        self.job: Final = job.id
        self.seconds: Final = round((job.ended or 0.0) - (job.started or 0.0), 1)
        self.roles: Final[tuple[RoleFit, ...]] = role_fits(job)

    @property
    def toml(self) -> str:
        """The tables of workload.toml that state what its roles need; empty where nothing was seen on a device."""
        from gpusched.render.fit import fit_toml

        return fit_toml(self.workload, self.roles)

    def __repr__(self) -> str:
        from gpusched.render.fit import fit_text

        return fit_text(self.workload, self.roles, self.job, self.seconds)


class FitRun:
    """A run to measure by, which is in the queue or has begun: `job` ends by itself; `result` is for then."""

    def __init__(self, workload: "Workload", job: "Job", seconds: float) -> None:
        self._workload, self.job, self.seconds = workload, job, seconds

    def result(self) -> Fit:
        """Return what was measured, once the job has ended. Raises JobFailed where it ended before it could show that.

        It waits for the job if it has not ended.
        """
        end = self.job.wait()
        lacked = any(one.exit is not None and one.exit.lacks_device_memory for one in end.replicas)
        if end.state is JobState.SUCCEEDED or is_out_of_time(end) or lacked:
            return Fit(self._workload, end)
        message = f"{end.id} {end.state}{f': {end.message}' if end.message else ''}"
        raise JobFailed(message, f"see what it wrote: gpusched logs {end.id}")


def begin(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[FitArguments]) -> FitRun:
    """Queue a run of one replica of each role, which gets all that its device has. Raises what `fit` raises."""
    require_known(given, FitArguments)
    chosen: dict[str, Any] = dict(given)
    seconds = parse_span(span_text(chosen.pop("time", None), "time") or _USUAL, "--time")
    asked = named_workload(workload)
    _require_devices()
    chosen["procs"] = chosen.get("procs") or _one_actor(workload, options)
    if chosen["procs"] == "max":
        raise UsageError("--procs max: a run to measure by has the number that is to be measured", "name a number")
    prepared = prepare(
        workload, options=options, begins="later", engine=LOCAL, machine=HERE, grow=True, time_limit=seconds, **chosen
    )
    return FitRun(asked, prepared.submit(), seconds)


@with_signature(FitArguments, {"time": _USUAL})
def fit(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[FitArguments]) -> Fit:
    """Run one replica of each role of a workload for a short time, and return what they took of their devices.

    They run together, for an actor does nothing without its learner, each on a device of its own where there are
    enough. The job waits for its turn in the queue of the daemon, which is started if there is none. Raises UsageError,
    NeverFits, NoDaemon and HostFault, and JobFailed if it ends for another reason than its time or a lack of memory.
    """
    run = begin(workload, options=options, **given)
    try:
        return run.result()
    except BaseException:  # such as KeyboardInterrupt
        with suppress(Exception):
            run.job.stop()
        raise


def _require_devices() -> None:
    """Raise HostFault on a host on which nothing can be measured."""
    from gpusched.execution.plan_options import read_machine

    inventory, _ = read_machine(None, load_settings(os.environ))
    if not inventory.devices:
        why = f": {inventory.problem}" if inventory.problem else ""
        raise HostFault(f"there is no GPU to measure on{why}", "run it on a host with the GPUs that are to be used")


def _one_actor(workload: WorkloadName, options: Options | None) -> int | None:
    """Return 1; None of a workload whose roles have the numbers that its file gives."""
    from gpusched.planner import counted_role

    try:
        counted_role(chosen_workload(workload, options).workload)
    except UsageError:
        return None
    return 1
