"""A job that starts now or not at all, followed to its end in this terminal: what `launch` and `join` share."""

import time
from typing import Final

import msgspec

from gpusched.api.handle import Job
from gpusched.api.launching import Launch, Reserved
from gpusched.cli.follow import follow, noting_stop_requests
from gpusched.errors import JobFailed
from gpusched.model.job import Joining
from gpusched.model.status import JobState, JobStatus, exit_text
from gpusched.render.screen import can_redraw
from gpusched.render.text import printable

__all__ = ["run_here"]

_INTERRUPTED: Final = 130
_LONGEST_LINE: Final = 300
_LAST_LINES: Final = 6
_RESULTS: Final = ("*.png", "*.gif", "*.csv", "*.npz", "*.h5", "evaluation.json", "tensorboard")


def run_here(launch: Launch, *, watch: bool, as_json: bool) -> None:
    """Start the job now or not at all, and follow it to its end. Raises SystemExit if it does not succeed."""
    reserved = launch.reserve()
    with noting_stop_requests() as requests:  # before this, Ctrl-C has nothing to stop
        job = reserved.start()
        if not as_json:
            _introduce(launch, reserved)
        status = follow(job, requests, live=can_redraw() and not as_json, quiet=as_json, frames=watch)
        reserved.clear()
    _report(status, job, as_json=as_json)
    if status.state is JobState.CANCELLED:
        raise SystemExit(_INTERRUPTED)
    if status.state is not JobState.SUCCEEDED:
        raise SystemExit(JobFailed.exit_code)


def _introduce(launch: Launch, reserved: Reserved) -> None:
    plan, network = reserved.plan, launch.network
    simulated = f" of {plan.inventory.host} (simulated)" if plan.inventory.simulated else ""
    where = f"{list(plan.counts)} on the devices{simulated}" if plan.devices else "on the CPUs of this host"
    count = f"{len(plan.replicas)} process{'es' if len(plan.replicas) > 1 else ''}"
    print(f"{reserved.job.id}: {f'{count}, {where}' if launch.cluster is None else launch.cluster}")
    if isinstance(network, Joining):
        actors = f"{len(plan.replicas)} actors" if len(plan.replicas) > 1 else "1 actor"
        print(printable(f"joined {network.job} at {network.endpoint}: {actors} as {network.host}"))
    for line in reserved.job.how_to_join:
        print(line)
    for warning in reserved.warnings:
        print(f"warning: {printable(warning)}")
    print(f"logs: {reserved.job.run_dir / 'logs'}", flush=True)


def _report(status: JobStatus, job: Job, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(msgspec.to_builtins(status)))
        return
    from gpusched.render.job_format import plain_progress, span

    took = f" after {span((status.ended or time.time()) - status.created)}" if status.created else ""
    print(f"{status.id} {status.state}{took}" + (f": {printable(status.message)}" if status.message else ""))
    if status.progress:
        print(plain_progress(status.progress))
    failed = [replica for replica in status.replicas if replica.state == "failed"]
    for replica in failed[:3]:
        print(f"  {replica.name}: {printable(exit_text(replica.exit)) if replica.exit else 'failed'}")
        for line in job.logs(replica.name, lines=_LAST_LINES):
            print(f"    | {printable(line)[:_LONGEST_LINE]}")
    place = job.results
    found = sorted({path.name for pattern in _RESULTS for path in place.glob(pattern)})
    if found:
        print(f"results: {place}: {printable(', '.join(found))}")
    print(f"logs:    {job.run_dir / 'logs'}")
