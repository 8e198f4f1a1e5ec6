"""Small queues for the scheduler's tests: jobs of one command or of a few roles, and a host on a virtual clock."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from gpusched.leases.directory import leases_of_plan
from gpusched.model.device import Inventory
from gpusched.model.job import CommandRequest, Submission
from gpusched.model.lease import Lease
from gpusched.model.plan import Request
from gpusched.model.workload import Role, Workload
from gpusched.scheduling.decision import Decision, Running
from gpusched.scheduling.group_places import Limits
from gpusched.scheduling.machine import MachineSnapshot
from gpusched.scheduling.run_times import PRIOR, RunTimes
from gpusched.scheduling.scheduler import schedule
from gpusched.settings import Settings
from gpusched.storage.job import Job

SETTINGS = Settings(
    state_dir=Path("/nowhere"),
    runtime_dir=Path("/nowhere"),
    lease_dir=Path("/nowhere"),
    context_mib=1,
    headroom=0,
    strict=True,
)
"""A queue in which a job passes another only by a proof or by its time limit."""


def submission(need: CommandRequest | Request, **fields: object) -> Submission:
    """Return what was asked for: a command, or the roles of a request."""
    names = [role.name for role in need.roles] if isinstance(need, Request) else ["command"]
    asked = Submission(
        workload=Workload(
            name="test", roles=tuple(Role(name=name, command=("true",)) for name in names), stop_grace_s=0.0
        ),
        request=need if isinstance(need, Request) else None,
        command=None if isinstance(need, Request) else need,
        cwd="/",
        environ={},
        python="python",
        xla_variable="XLA_CLIENT_MEM_FRACTION",
    )
    return replace(asked, **fields)


def job(name: str, need: CommandRequest | Request, *, created: float = 0.0, **fields: object) -> Job:
    return Job(id=name, run_dir=f"/jobs/{name}", created=created, submission=submission(need, **fields))


def whole(devices: int) -> CommandRequest:
    return CommandRequest(devices=devices)


def part(fraction: float) -> CommandRequest:
    return CommandRequest(fraction=round(fraction * 10_000))


def memory(mib: int) -> CommandRequest:
    return CommandRequest(memory_mib=mib)


def lease(name: str, share: int, device: int = 0, **fields: object) -> Lease:
    asked = Lease(device_uuid=f"GPU-{device}", share_mib=share, job=name, replica="command.0", run_dir=f"/jobs/{name}")
    return replace(asked, **fields)


def decide(
    waiting: Sequence[Job],
    inventory: Inventory,
    leases: Sequence[Lease] = (),
    running: Sequence[Running] = (),
    *,
    blocked: Mapping[str, str] | None = None,
    settings: Settings = SETTINGS,
    now: float = 0.0,
    expected: Callable[[Job], RunTimes] = lambda _: PRIOR,
    limits: Mapping[str, int] | None = None,
    at_most: Mapping[str, int] | None = None,
) -> Decision:
    """Decide on this host alone; every job of `leases` without a user is ours and runs."""
    told = {each.id for each in running}
    ours = {one.job for one in leases if one.user is None} - told
    live = [*running, *(Running(id=name, run_dir=f"/jobs/{name}") for name in sorted(ours))]
    snapshot = MachineSnapshot(inventory=inventory, leases=tuple(leases))
    return schedule(
        waiting,
        live,
        {None: snapshot},
        blocked or {},
        settings,
        now,
        expected=expected,
        limits=Limits(limits or {}, at_most or {}),
    )


def started(decision: Decision) -> list[str]:
    return [start.id for start in decision.starts]


def leases_of(decision: Decision) -> Iterable[Lease]:
    """Return what the jobs that start now hold, as it will stand in the lease directory."""
    for start in decision.starts:
        for one in leases_of_plan(start.plan, start.id):
            yield replace(one, run_dir=f"/jobs/{start.id}")
