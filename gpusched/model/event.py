"""What happened to a job or a device, as notifications have it. No environment, and no command line: see docs."""

import msgspec

__all__ = ["Event"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `event` is one of notify_settings.EVENTS. Times in Unix seconds; what is unknown is None.

    `id` is the same however often it is delivered, and wherever. `directory` is the one that the job works in,
    `run_dir` has its logs. `exit_code`: of the command or the leader, 128 + n if signal n killed it. A device that is
    drained has `device`, what people call it, and `uuid`, and no job.
    """

    id: str
    event: str
    time: float
    host: str
    job: str | None = None
    name: str | None = None
    workload: str | None = None
    state: str | None = None
    message: str | None = None
    exit_code: int | None = None
    attempt: int | None = None
    created: float | None = None
    started: float | None = None
    ended: float | None = None
    directory: str | None = None
    run_dir: str | None = None
    device: str | None = None
    uuid: str | None = None
