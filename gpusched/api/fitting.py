"""What a workload's roles need, by a short run of one replica of each: what to write into its workload.toml.

See model/fit.py for what is run and what is made of it.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, Unpack

from msgspec import Meta

from gpusched.api.arguments import span_text
from gpusched.api.launching import prepared_here
from gpusched.api.plan_arguments import require_known, with_signature
from gpusched.api.validation import require_type
from gpusched.api.workloads import Options, WorkloadName, chosen_workload, named_workload
from gpusched.errors import HostFault, JobFailed
from gpusched.model.device import Device
from gpusched.model.fit import RoleFit, has_failed, role_fits, run_seconds, to_measure
from gpusched.model.status import JobState, JobStatus, is_out_of_time
from gpusched.settings import HERE, load_settings
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
    """How many actors, where their number changes what others need; one where none is given. Of other roles one."""
    gpus: str | None
    """Only these devices, as of plan."""
    exclude_gpus: str | None
    """All devices but these."""
    ignore_foreign: int | str | None
    """Processes of no job to plan over, as of plan."""


class Fit:
    """What each role of a workload took in a run of `seconds`. It prints as a table, and what to write into the file.

    `workload` is as its file has it. `roles`: those whose replicas began. `status`: how the run ended.
    """

    def __init__(self, workload: "Workload", job: JobStatus, devices: Sequence[Device]) -> None:
        self.workload: Final = workload
        self.job: Final = job.id
        self.status: Final = job
        self.seconds: Final = run_seconds(job)
        self.roles: Final[tuple[RoleFit, ...]] = role_fits(job, devices)

    @property
    def toml(self) -> str:
        """The tables of workload.toml that state what its roles need; empty where nothing was seen on a device."""
        from gpusched.render.fit import fit_toml

        return fit_toml(self.workload, self.roles)

    def __repr__(self) -> str:
        from gpusched.render.ansi import plain
        from gpusched.render.fit import draw_fit

        return plain(lambda width: draw_fit(self.workload, self.roles, self.status, width))


class FitRun:
    """A run to measure by, which is in the queue or has begun: `job` ends by itself; `result` is for then."""

    def __init__(self, workload: "Workload", job: "Job", seconds: float, devices: Sequence[Device]) -> None:
        self._workload, self.job, self.seconds, self._devices = workload, job, seconds, devices

    def result(self) -> Fit:
        """Return what was measured, once the job has ended, for which it waits.

        Raises JobFailed where it ended before it could show that, and where a replica failed for another reason than a
        lack of memory: then neither its figures are a measure, nor those of the others, which had nothing to do.
        """
        end = self.job.wait()
        lacked = any(one.exit is not None and one.exit.lacks_device_memory for one in end.replicas)
        hint = f"see what it wrote: gpusched logs {end.id}"
        if not (end.state is JobState.SUCCEEDED or is_out_of_time(end) or lacked):
            raise JobFailed(f"{end.id} {end.state}{f': {end.message}' if end.message else ''}", hint)
        if (failing := next(filter(has_failed, end.replicas), None)) is not None:
            raise JobFailed(f"{failing.name} of {end.id} failed and was started again, so nothing was measured", hint)
        return Fit(self._workload, end, self._devices)


def begin(workload: WorkloadName, *, options: Options | None = None, **given: Unpack[FitArguments]) -> FitRun:
    """Queue a run of one replica of each role, which gets all that its device has. Raises what `fit` raises."""
    require_known(given, FitArguments)
    wanted: dict[str, Any] = dict(given)
    seconds = parse_span(span_text(wanted.pop("time", None), "time") or _USUAL, "--time")
    require_type(wanted.get("procs"), Annotated[int, Meta(ge=1)] | None, "procs")
    chosen = chosen_workload(workload, options)
    devices = _devices()
    if not devices:
        raise HostFault("there is no GPU to measure on", "run it on a host with the GPUs that are to be used")
    measured = chosen._replace(workload=to_measure(chosen.workload))
    terms = {"machine": HERE, "grow": True, "time_limit": seconds}
    prepared = prepared_here(measured, wanted | terms, load_settings(os.environ), begins="later")
    return FitRun(named_workload(workload), prepared.submit(), seconds, devices)


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


def _devices() -> Sequence[Device]:
    """Return this host's devices. Raises HostFault where the driver does not work."""
    from gpusched.execution.plan_options import read_machine

    inventory, _ = read_machine(None, load_settings(os.environ))
    if not inventory.devices and inventory.problem:
        raise HostFault(f"there is no GPU to measure on: {inventory.problem}", "mend that, or run it on another host")
    return inventory.devices
