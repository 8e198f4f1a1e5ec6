"""The two tables of `status`: the processes on the devices, and the jobs. It must not read anything."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.execution.snapshot import Snapshot
from gpusched.model.array import array_of
from gpusched.model.device import Device, DeviceProcess
from gpusched.model.lease import shares_used
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus, ReplicaState
from gpusched.render.ansi import Text
from gpusched.render.job_format import idle_mark, network_lines, plain_progress, ready_text, span, time_run
from gpusched.render.table import fitting, lines_of, room_of_last, wrapped
from gpusched.render.text import cut, printable

__all__ = ["JOB_COLOURS", "job_table", "process_table"]

JOB_COLOURS: Final = (
    "green",
    "cyan",
    "blue",
    "magenta",
    "bright_green",
    "bright_cyan",
    "bright_blue",
    "bright_magenta",
)
"""One for each job, in their order, and then from the first again."""

_STATE_COLOURS: Final = {
    JobState.RUNNING: "green",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.LOST: "red",
}
_LONGEST_NAME: Final = 12
_LONGEST_JOB_NAME: Final = 16
_MOST_WAITING: Final = 10
_MOST_ENDED: Final = 5
_MOST_IDLE: Final = 8
_JOB_TITLES: Final = ("JOB", "STATE", "COUNTS", ">RUNNING", ">RESTARTS", ">TIME", "PROGRESS")
_MAY_GO: Final = ("COUNTS", ">RUNNING")
_LEAST_NAME: Final = 8
_NO_ROOM: Final = -2  # an empty last column needs not even the gap before it


def process_table(snapshot: Snapshot, width: int | None) -> Iterator[Text]:
    """Yield the lines of the table of processes, with each one's use against its share; `width` in columns or None.

    The column of what they use of the device's time is there if that is known of any: from the second reading on.
    """
    rows = list(_process_rows(snapshot))
    if not rows:
        yield Text("no process uses a device", style="dim")
        return
    titles: Sequence[str] = ("GPU", ">PID", "USER", "TYPE", ">SM", "JOB", "REPLICA", ">USED / SHARE", "COMMAND")
    at = titles.index(">SM")
    if all(row[at].plain == "-" for row in rows):
        titles, rows = [*titles[:at], *titles[at + 1 :]], [[*row[:at], *row[at + 1 :]] for row in rows]
    yield from lines_of(titles, rows, width)
    idle = [
        _idle(device, process, snapshot.time)
        for device in snapshot.inventory.devices
        for process in device.processes
        if process.idle_since is not None
    ]
    for line in idle[:_MOST_IDLE]:
        yield from wrapped(line, width, style="yellow")
    if len(idle) > _MOST_IDLE:
        yield Text(f"idle: {len(idle) - _MOST_IDLE} more; gpusched status --json has all", style="yellow")


def _idle(device: Device, process: DeviceProcess, now: float) -> str:
    """Return `idle: pid 4711 of bob holds 9318 MiB of GPU 1 and has done nothing for 3h12m; it began 2d04h ago`."""
    memory = "memory" if process.memory_mib is None else f"{process.memory_mib} MiB"
    nothing = f"has done nothing for {span(now - (process.idle_since or now))}"
    age = "" if process.began is None else f"; it began {span(now - process.began)} ago"
    who = f"pid {process.pid} of {process.user or 'an unknown user'}"
    return printable(f"idle: {who} holds {memory} of GPU {device.label} and {nothing}{age}")


def job_table(snapshot: Snapshot, width: int | None) -> Iterator[Text]:
    """Yield the lines of the table of jobs, for `width` columns or, with None, as long as they are.

    Of those that ended lately the last five are there; a member that ended is part of its array's row. Where it is
    narrow, the columns go that matter least, and progress that has no room stands below its job, whole.
    """
    if not snapshot.jobs:
        yield Text("no jobs", style="dim")
        return
    waiting = [number for number, job in enumerate(snapshot.jobs) if job.state is JobState.QUEUED]
    all_ended = [number for number, job in enumerate(snapshot.jobs) if job.state in JOB_TERMINAL]
    arrays = {job.id for job in snapshot.jobs if job.array is not None}
    ended = [number for number in all_ended if array_of(snapshot.jobs[number].id) not in arrays]
    left_out = {*waiting[_MOST_WAITING:], *ended[_MOST_ENDED:]} | {*all_ended} - {*ended}
    shown = [(number, job) for number, job in enumerate(snapshot.jobs) if number not in left_out]
    titles, rows = fitting(
        _JOB_TITLES, [_job_row(number, job, snapshot) for number, job in shown], width, _MAY_GO, _NO_ROOM
    )
    if width is not None and (over := _NO_ROOM - room_of_last(titles, rows, width)) > 0:
        name = max(max(row[0].cell_len for row in rows) - over, _LEAST_NAME)
        rows = [[_cut(row[0], name), *row[1:]] for row in rows]
    room = None if width is None else room_of_last(titles, rows, width)
    below = [room is not None and row[-1].cell_len > room for row in rows]
    cells = [[*row[:-1], Text("")] if under else row for row, under in zip(rows, below, strict=True)]
    kept = any(row[-1].plain not in ("", "-") for row in cells)
    head, *lines = lines_of(titles if kept or not any(below) else [*titles[:-1], ""], cells, width)
    yield head
    for line, row, under, (number, job) in zip(lines, rows, below, shown, strict=True):
        yield line
        if under and row[-1].plain != "-":
            yield from wrapped(row[-1].plain, width, indent="   ")
        for text in network_lines(job):
            yield Text(f"   {text}", style="dim")
        if len(waiting) > _MOST_WAITING and number == waiting[_MOST_WAITING - 1]:
            yield Text(f"and {len(waiting) - _MOST_WAITING} more that wait: gpusched ps --why", style="dim")
        if len(ended) > _MOST_ENDED and number == ended[_MOST_ENDED - 1]:
            yield Text(f"and {len(ended) - _MOST_ENDED} more that ended lately: gpusched ps", style="dim")


def _process_rows(snapshot: Snapshot) -> Iterator[list[Text]]:
    shares = shares_used(snapshot.leases)
    for device in snapshot.inventory.devices:
        for process in device.processes:
            lease, share_mib = snapshot.holders.get(process.pid), shares.get((process.pid, device.uuid)) or None
            yield [
                Text(device.label),
                Text(str(process.pid)),
                Text((process.user or "-")[:_LONGEST_NAME]),
                Text(process.kind),
                Text("-" if process.sm_percent is None else f"{process.sm_percent}%"),
                _job(lease.job_label, snapshot) if lease else Text("foreign", "yellow"),
                Text((lease.replica if lease else "") or "-"),
                _memory(process.memory_mib, share_mib),
                Text(_short(process.command), "dim"),
            ]
    if snapshot.inventory.simulated:
        yield from _simulated_rows(snapshot)


def _simulated_rows(snapshot: Snapshot) -> Iterator[list[Text]]:
    """The replicas of simulated jobs: they run on this host, and stand on a device that is not here."""
    labels = {device.uuid: device.label for device in snapshot.inventory.devices}
    for job in snapshot.jobs:
        for one in job.replicas:
            if job.simulated and one.pid is not None and one.device_uuid in labels:
                name = _job(job.id, snapshot).append(" (simulated)", "yellow")
                first = [Text(labels[one.device_uuid]), Text(str(one.pid)), Text("-"), Text("-"), Text("-")]
                yield [*first, name, Text(one.name), _memory(None, one.share_mib), Text("")]


def _memory(used_mib: int | None, share_mib: int | None) -> Text:
    used = "-" if used_mib is None else str(used_mib)
    if share_mib is None:
        return Text(f"{used} MiB")
    over = used_mib is not None and used_mib > share_mib
    return Text(f"{'over: ' * over}{used} / {share_mib} MiB", "bold red" if over else "")


def _job(job: str, snapshot: Snapshot) -> Text:
    number = next((number for number, each in enumerate(snapshot.jobs) if each.id == job), 0)
    return Text(job, JOB_COLOURS[number % len(JOB_COLOURS)])


def _short(command: str | None) -> str:
    """Return a command line without the directory of its program, in one line."""
    program, _, arguments = (command or "-").partition(" ")
    return printable(" ".join(f"{program.rpartition('/')[2]} {arguments}".split()))


def _job_row(number: int, job: JobStatus, snapshot: Snapshot) -> list[Text]:
    name = Text(job.id, style="dim" if job.state in JOB_TERMINAL else JOB_COLOURS[number % len(JOB_COLOURS)])
    if job.name is not None:
        name.append(f" {cut(printable(job.name), _LONGEST_JOB_NAME)}", style="dim")
    if job.simulated:
        name.append(f" on {job.machine} (simulated)", style="yellow")
    running = sum(one.state is ReplicaState.RUNNING for one in job.replicas)
    restarts = sum(one.restarts for one in job.replicas)
    return [
        name,
        _state(job, snapshot.time),
        Text(f"[{', '.join(map(str, job.counts))}]" if job.counts else "-"),
        Text(f"{running}/{len(job.replicas)}" if job.replicas else "-"),
        Text(str(restarts), style="yellow" if restarts else ""),
        Text(time_run(job, snapshot.time)),
        Text(_progress(job)),
    ]


def _state(job: JobStatus, now: float) -> Text:
    mark = idle_mark(job, now)
    style = "yellow" if mark else _STATE_COLOURS.get(job.state, "yellow")
    return Text(f"{'held' if job.held else job.state}{mark}", style=style)


def _cut(text: Text, width: int) -> Text:
    shown = text.copy()
    shown.truncate(width)
    return shown


def _progress(job: JobStatus) -> str:
    if job.state is JobState.QUEUED:
        return f"gpusched release {job.id}" if job.held else printable(job.why or "waits for its turn")
    if job.message and job.state in JOB_TERMINAL:
        return printable(job.message)
    if job.progress:
        return plain_progress(job.progress)
    return job.note or ready_text(job) or "-"
