"""Which numbers there are, with their names, labels and bounds (docs/metrics.md). No I/O, no clock.

Names are Prometheus' own way: base units (bytes, seconds, ratios from 0 to 1), `_total` for what only grows, `_info`
for texts (https://prometheus.io/docs/practices/naming). What is not known has no sample: it is not 0. No label is a
pid, and what has ended has none, so that the number of series is bounded by what runs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device
from gpusched.model.lease import Holder, Lease
from gpusched.model.status import JOB_TERMINAL, REPLICA_TERMINAL, JobState, JobStatus, ReplicaStatus, waited_s
from gpusched.planner.capacity import device_capacities
from gpusched.probe.drained import drained_by

__all__ = ["MOST_JOBS", "MOST_REPLICAS", "Family", "families"]

_JOB: Final = "job_id"
"""Not "job", which Prometheus itself gives to each target: it would make another name of it, exported_job."""

MOST_JOBS: Final = 1000
"""Jobs with series of their own, the oldest; the others are only counted."""

MOST_REPLICAS: Final = 4000
"""Replicas with series of their own."""

_MIB: Final = 1 << 20
_LIVE: Final = (JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING)

Labels = tuple[str, ...]


class Family(NamedTuple):
    """All samples of one name: the values of its `labels`, each with a number. `kind` is `gauge` or `counter`."""

    name: str
    text: str
    labels: Labels
    samples: Sequence[tuple[Labels, float]]
    kind: str = "gauge"


def families(moment: Snapshot, version: str, headroom: int) -> Iterator[Family]:
    """Yield all families of a moment that have a sample. `headroom`: what plans leave free of a device, in 1/10 000."""
    jobs = [job for job in moment.jobs if job.state not in JOB_TERMINAL]
    begun = [job for job in jobs if job.state is not JobState.QUEUED and job.array is None]
    shown = begun[:MOST_JOBS]
    replicas = [
        _Placed(job, one) for job in shown for one in job.replicas if one.state not in REPLICA_TERMINAL and job.replicas
    ]
    waits = any(job.state is JobState.QUEUED or job.array is not None for job in jobs)
    is_up = moment.queue_problem is None and (moment.daemon_runs or not waits)
    omitted = [(("job",), len(begun) - len(shown)), (("replica",), max(0, len(replicas) - MOST_REPLICAS))]
    found = [
        Family("gpusched_build_info", "The version of gpusched.", ("version",), [((version,), 1)]),
        Family(
            "gpusched_queue_up",
            "0: jobs wait and no daemon starts them, or it did not answer, and what waits is not known.",
            (),
            [((), is_up)],
        ),
        Family("gpusched_series_omitted", "Jobs and replicas without series: too many.", ("kind",), omitted),
        *_of_devices(moment, headroom),
        *_of_queue(jobs, moment.time, is_up=is_up),
        *_of_jobs(shown, moment.time),
        *_of_replicas(replicas[:MOST_REPLICAS], moment),
    ]
    return (family for family in found if family.samples)


def _of_devices(moment: Snapshot, headroom: int) -> Iterator[Family]:
    inventory, devices = moment.inventory, moment.inventory.devices
    yield Family(
        "gpusched_device_info",
        "A GPU, or an instance of one (MIG).",
        ("uuid", "index", "name", "driver_version"),
        [((one.uuid, one.label, one.name, inventory.driver_version or ""), 1) for one in devices],
    )
    for name, text, number in _DEVICE_NUMBERS:
        kind = "counter" if name.endswith("_total") else "gauge"
        yield Family(f"gpusched_device_{name}", text, ("uuid",), list(_known(devices, number)), kind)
    drains = [((one.uuid, by), float(drained_by(one) == by)) for one in devices for by in ("person", "fault")]
    yield Family("gpusched_device_drained", "Whether it is given to no new job, and by whom.", ("uuid", "by"), drains)
    reasons = [((one.uuid, reason), 1.0) for one in devices for reason in one.slowed_by or ()]
    yield Family("gpusched_device_slowed", "Why its clocks are low just now.", ("uuid", "reason"), reasons)
    held: dict[tuple[str, str], float] = {}
    for lease in moment.leases:
        owner = lease.device_uuid, lease.user or _own_user(moment.jobs)
        held[owner] = held.get(owner, 0.0) + lease.share_mib * _MIB
    text = "What jobs have been given of it, by user."
    yield Family("gpusched_device_memory_leased_bytes", text, ("uuid", "user"), list(held.items()))
    capacities = device_capacities(inventory, moment.leases, headroom, None)
    for name, text, mibs in (
        ("plannable", "What a job could get of it now.", [(one.device.uuid, one.plannable_mib) for one in capacities]),
        ("foreign", "What processes of no job use of it.", [(one.device.uuid, one.foreign_mib) for one in capacities]),
    ):
        samples = [((uuid,), float(mib * _MIB)) for uuid, mib in mibs]
        yield Family(f"gpusched_device_memory_{name}_bytes", text, ("uuid",), samples)


def _own_user(jobs: Sequence[JobStatus]) -> str:
    """Return who we are, as the jobs have it; empty where none does."""
    return next((job.user for job in jobs if job.user), "")


def _of_queue(jobs: Sequence[JobStatus], now: float, *, is_up: bool) -> Iterator[Family]:
    counts = dict.fromkeys(_LIVE, 0)
    for job in jobs:
        counts[job.state] += 1 if job.array is None else 0
        if job.array is not None:
            counts[JobState.QUEUED] += job.array.waiting
    yield Family(
        "gpusched_jobs",
        "How many jobs live, members of arrays each; of ended ones there is no number.",
        ("state",),
        [((str(state),), count) for state, count in counts.items()],
    )
    if is_up:  # else what is held, and when it may start, is not known
        waits = [now - max(job.created, job.at or 0.0) for job in jobs if _may_start(job, now)]
        text = "For how long the job has waited that waits longest, of those that may start; 0: none waits."
        yield Family("gpusched_queue_oldest_wait_seconds", text, (), [((), max([0.0, *waits]))])


def _may_start(job: JobStatus, now: float) -> bool:
    """Return whether a job, or a member of an array, waits that is not held and whose time has come."""
    waits = job.state is JobState.QUEUED if job.array is None else job.array.waiting > 0
    return waits and not job.held and (job.at is None or job.at <= now)


def _of_jobs(jobs: Sequence[JobStatus], now: float) -> Iterator[Family]:
    about = [((one.id, one.name or "", one.workload, one.user or "", one.group or ""), 1.0) for one in jobs]
    yield Family("gpusched_job_info", "A job that runs.", (_JOB, "name", "workload", "user", "group"), about)
    for name, text, number in (
        ("wait_seconds", "For how long it waited before it started.", lambda job: waited_s(job, now)),
        ("start_time_seconds", "When it started, in Unix seconds.", lambda job: job.started),
        ("idle_seconds", "For how long its GPUs have done nothing.", lambda job: _since(job.idle_since, now)),
        ("progress_step", "The step that it reported last.", lambda job: _reported(job, "step")),
        ("progress_score", "The score that it reported last.", lambda job: _reported(job, "score")),
    ):
        samples = [((job.id,), float(value)) for job in jobs if (value := number(job)) is not None]
        yield Family(f"gpusched_job_{name}", text, (_JOB,), samples)


def _since(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def _reported(job: JobStatus, name: str) -> float | None:
    value = (job.progress or {}).get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a program may report any number
        return None


class _Placed(NamedTuple):
    """A replica of a job that lives."""

    job: JobStatus
    replica: ReplicaStatus

    @property
    def labels(self) -> Labels:
        return self.job.id, self.replica.role, self.replica.name, self.replica.device_uuid or ""


def _of_replicas(replicas: Sequence[_Placed], moment: Snapshot) -> Iterator[Family]:
    labels = (_JOB, "role", "replica", "uuid")
    busy = _busy(moment)
    on_device = [one for one in replicas if one.replica.device_uuid is not None and not one.job.simulated]
    for name, text, number in (
        ("share_bytes", "What it was given of its device, with the context.", lambda one: one.replica.share_mib),
        ("limit_bytes", "What its frameworks may allocate.", lambda one: one.replica.limit_mib),
        ("used_bytes", "What its processes use, by the driver.", lambda one: one.replica.used_mib),
        ("peak_bytes", "The most that its framework had allocated.", _peak_mib),
    ):
        samples = [(one.labels, float(mib * _MIB)) for one in on_device if (mib := number(one)) is not None]
        yield Family(f"gpusched_replica_memory_{name}", text, labels, samples)
    text = "In which part of the time its kernels ran."
    used = [(one.labels, ratio) for one in on_device if (ratio := busy.get(_holder(one))) is not None]
    yield Family("gpusched_replica_sm_utilization_ratio", text, labels, used)
    text = "How often it was started again, since its job began."
    again = [(one.labels, float(one.replica.restarts)) for one in replicas]
    yield Family("gpusched_replica_restarts_total", text, labels, again, "counter")


def _peak_mib(one: _Placed) -> int | None:
    return one.replica.usage[-1].peak_mib if one.replica.usage else None


def _holder(one: _Placed) -> Holder:
    return None, one.job.run_dir, one.job.id, one.replica.name


def _busy(moment: Snapshot) -> dict[Holder, float]:
    """Return in which part of the time kernels of a replica ran, of the mean of its devices, where all is known."""
    percent: dict[Holder, dict[str, int | None]] = {}
    for device in moment.inventory.devices:
        for process in device.processes:
            lease: Lease | None = moment.holders.get(process.pid)
            if lease is not None:
                found = percent.setdefault(lease.holder, {})
                before = found.get(device.uuid, 0)
                known = before is not None and process.sm_percent is not None
                found[device.uuid] = (before or 0) + (process.sm_percent or 0) if known else None
    return {
        holder: sum(min(100, one or 0) for one in found.values()) / len(found) / 100
        for holder, found in percent.items()
        if None not in found.values()
    }


def _known(devices: Iterable[Device], number: Callable[[Device], float | None]) -> Iterator[tuple[Labels, float]]:
    for one in devices:
        value = number(one)
        if value is not None:
            yield (one.uuid,), float(value)


def _bytes(mib: int | None) -> float | None:
    return None if mib is None else mib * _MIB


def _ratio(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


_DEVICE_NUMBERS: Final[Sequence[tuple[str, str, Callable[[Device], float | None]]]] = (
    ("memory_total_bytes", "Its memory.", lambda one: _bytes(one.memory_total_mib)),
    ("memory_used_bytes", "What is used of it.", lambda one: _bytes(one.memory_used_mib)),
    ("memory_reserved_bytes", "What the driver keeps of it.", lambda one: _bytes(one.memory_reserved_mib)),
    ("utilization_ratio", "In which part of the time any kernel ran.", lambda one: _ratio(one.utilization_percent)),
    ("temperature_celsius", "Its temperature.", lambda one: one.temperature_c),
    ("power_watts", "The power that it draws.", lambda one: one.power_w),
    ("power_limit_watts", "The power that it may draw.", lambda one: one.power_limit_w),
    ("energy_joules_total", "What it has used since the driver was loaded.", lambda one: one.energy_j),
    ("ecc_errors_total", "Memory errors that could not be corrected, since the reset.", lambda one: one.ecc_errors),
    ("healthy", "Whether it can be used.", lambda one: float(one.health == "ok")),
)
