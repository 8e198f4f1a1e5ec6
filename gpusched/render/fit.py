"""Draws what each role of a workload took in a run to measure by, and what to write into its file."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Final

from gpusched.model.fit import RoleFit, run_seconds
from gpusched.model.status import JOB_TERMINAL, JobState, JobStatus
from gpusched.model.workload import Memory, Setting, Workload
from gpusched.render.ansi import Text
from gpusched.render.job_format import bar, memory_text, span
from gpusched.render.table import lines_of
from gpusched.render.text import printable

__all__ = ["draw_fit", "fit_toml", "progress"]

_GIB: Final = 1024
_WHOLE: Final = 10_000


def fit_toml(workload: Workload, roles: Sequence[RoleFit]) -> str:
    """Return the tables of workload.toml with what to ask for, empty where nothing was seen on a device."""
    tables = [f"[roles.{one.role}]\n{_line(workload, one)}\n" for one in roles if one.ask_mib is not None]
    return "\n".join(tables)


def progress(job: JobStatus, seconds: float, now: float, *, live: bool) -> str:
    """Return how far the run is, empty at its end; `live` False: without what changes all the time."""
    if job.state in JOB_TERMINAL:
        return ""
    if job.started is None or job.state is JobState.QUEUED:
        return f"{job.id} waits: {printable(job.why or 'it was just queued')}" if live else f"{job.id} waits"
    if not live:
        return f"{job.id} runs for {span(seconds)}"
    passed = max(0.0, now - job.started)
    return f"{job.id}  {bar(passed / seconds)} {min(passed, seconds):.0f} of {seconds:.0f} s"


def draw_fit(workload: Workload, roles: Sequence[RoleFit], job: JobStatus, width: int | None) -> Iterator[Text]:
    """Yield the table, what to write into the file, and what is to be known of both; `job` is the run, at its end."""
    yield Text(f"{workload.name} ran for {span(run_seconds(job))} as {job.id}")
    yield Text("")
    yield from lines_of(*_cells(roles), width)
    for one in roles:
        if note := _note(one):
            yield Text("")
            yield Text(note, "yellow")
    if job.progress is None:
        yield Text("")
        yield Text(f"{job.id} reported no progress: if its work had not begun, run it for longer: --time 3m", "yellow")
    toml = fit_toml(workload, roles)
    if toml:
        yield Text("")
        yield Text(f"for {printable(str(workload.path))}:")
        yield Text("")
        yield from (Text(line) for line in toml.splitlines())


def _cells(roles: Sequence[RoleFit]) -> tuple[Sequence[str], Sequence[Sequence[Text]]]:
    titles = ["ROLE", "GPU", ">GIVEN", ">TAKEN", ">NEEDED", ">CONTEXT", ">HOST", "FRAMEWORK"]
    rows = [
        [
            Text(one.role, "bold"),
            Text(printable(one.device or "none")),
            Text(memory_text(one.limit_mib or None)),
            Text(memory_text(one.device_mib)),
            Text(memory_text(one.peak_mib)),
            Text(memory_text(one.context_mib)),
            Text(memory_text(one.host_mib)),
            Text(printable(one.framework or "-")),
        ]
        for one in roles
    ]
    return titles, rows


def _note(one: RoleFit) -> str:
    """Return what a person should know of a role's figures, empty where they are all."""
    if one.several:
        return f"{one.role}: it has several whole GPUs, and its file stays as it is"
    if one.lacked:
        lack = f"{one.role}: out of memory at {one.limit_mib} MiB, and it needs more"
        return f"{lack} than a whole {one.device} has" if one.ask_mib is None else f"{lack}: this is a next try"
    if one.device is not None and one.ask_mib is None:
        return f"{one.role}: nothing was seen of it on its device. Run it for longer: --time 3m"
    if one.ask_mib is not None and one.framework is None:
        return f"{one.role}: none of its frameworks counts; it is what the driver showed, less the planned context"
    return ""


def _line(workload: Workload, one: RoleFit) -> str:
    """Return the line of a role's memory, with what its file had before."""
    asked = next(role for role in workload.roles if role.name == one.role)
    memory = asked.memory
    parts = [f"min = {_amount(one.ask_mib or 0)}"]
    if memory is not None:
        parts += _kept(memory, one.ask_mib or 0)
    if memory is None:
        return f"memory = {{ {', '.join(parts)} }}  # in the place of: devices = {json.dumps(asked.devices)}"
    return f"memory = {{ {', '.join(parts)} }}  # was {_was(memory, one.ask_mib or 0)}"


def _was(memory: Memory, ask_mib: int) -> str:
    """Return the minimum that the file has, and a maximum that is below what is needed and so goes."""
    before = f"min = {_before(memory)}"
    return (
        before if memory.max_mib is None or memory.max_mib >= ask_mib else f"{before}, max = {_amount(memory.max_mib)}"
    )


def _kept(memory: Memory, ask_mib: int) -> Iterator[str]:
    """Yield what the file has beside the minimum, and which stays."""
    if memory.share is not None:
        yield f"share = {memory.share / _WHOLE:g}"
    if memory.max_mib is not None and memory.max_mib >= ask_mib:
        yield f"max = {_amount(memory.max_mib)}"
    if memory.unless:
        yield f"unless = {{ {', '.join(f'{name} = {_value(value)}' for name, value in memory.unless)} }}"


def _before(memory: Memory) -> str:
    if memory.first_mib is None:
        return _amount(memory.min_mib)
    return f'"auto:{memory.first_mib}MiB"' if memory.first_mib else '"auto"'


def _value(value: Setting) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")  # else TOML writes the same


def _amount(mib: int) -> str:
    return f'"{mib}MiB"' if mib % _GIB else f'"{mib // _GIB}GiB"'
