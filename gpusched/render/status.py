"""Draws a snapshot: the host, its devices with a bar of their memory, the processes on them, the jobs.

It must not read anything. Without colours or without Unicode the bars are made of letters.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from gpusched.execution.snapshot import Snapshot
from gpusched.model.device import Device
from gpusched.render.ansi import Text, colours_of, painted, width_of
from gpusched.render.memory_parts import MemoryParts, Part
from gpusched.render.slowdown import is_usual, slowdown, slowdowns
from gpusched.render.status_tables import JOB_COLOURS, job_table, process_table
from gpusched.render.table import cell_widths, flowed, wrapped
from gpusched.units import format_mib, number

__all__ = ["print_status", "status_lines", "status_text"]

_WIDTH_OF_A_PIPE: Final = 140
_MOST_BLOCKS: Final = 16
_PART_COLOURS: Final = {
    "others": "yellow",
    "foreign": "yellow",
    "other": "white",
    "reserved": "bright_black",
    "free": "bright_black",
}
_BLOCKS: Final = {"used": "█", "leased": "▒", "others": "▒", "foreign": "▓", "other": "▓", "reserved": "░", "free": "·"}
_PART_NAMES: Final = {"others": "leased by others"}
_LETTERS: Final = {"others": "=", "foreign": "#", "other": "+", "reserved": "%", "free": "."}
_HOT_C, _WARM_C = 90, 80


class _Paper(msgspec.Struct, frozen=True):
    """What there is to draw on: columns, and whether it can show more than ASCII, and colours.

    A pipe is not `bounded`: what is drawn keeps to `width` there, and no text is cut.
    """

    width: int
    unicode: bool
    colour: bool
    bounded: bool = True

    @property
    def room(self) -> int | None:
        """How long a line of text may be, None for any length."""
        return self.width if self.bounded else None


def print_status(snapshot: Snapshot, *, unicode: bool) -> None:
    """Print the snapshot for people: in colour and as wide as the terminal, or plain text where there is none."""
    width = width_of(sys.stdout, 0)
    paper = _Paper(width or _WIDTH_OF_A_PIPE, unicode, colours_of(sys.stdout) > 0, bounded=width > 0)
    for line in _painted(snapshot, paper):
        print(line)


def status_lines(snapshot: Snapshot, width: int, *, unicode: bool) -> list[str]:
    """Return the snapshot as the lines of a terminal that has `width` columns, with its escape sequences."""
    return list(_painted(snapshot, _Paper(width, unicode, colours_of(sys.stdout) > 0)))


def status_text(snapshot: Snapshot) -> str:
    """Return the snapshot as plain text, as `status` writes it to a pipe."""
    paper = _Paper(_WIDTH_OF_A_PIPE, unicode=True, colour=False, bounded=False)
    return "\n".join(painted(line.pieces, 0) for line in _parts(snapshot, paper))


def _painted(snapshot: Snapshot, paper: _Paper) -> Iterator[str]:
    colours = colours_of(sys.stdout)
    for line in _parts(snapshot, paper):
        if paper.room is not None:
            line.truncate(paper.room)
        yield painted(line.pieces, colours)


def _parts(snapshot: Snapshot, paper: _Paper) -> Iterator[Text]:
    yield _header(snapshot, paper)
    devices = snapshot.inventory.devices
    if snapshot.inventory.problem is not None:
        yield from wrapped(f"problem: {snapshot.inventory.problem}", paper.room, style="bold red")
    if not devices:
        yield from wrapped("no GPU on this host: jobs run on its CPUs", paper.room, style="dim")
        for machine in sorted({job.machine for job in snapshot.jobs if job.simulated}):
            hint = f"the simulated devices are shown by: gpusched status --machine {machine}"
            yield from wrapped(hint, paper.room, style="dim")
    if snapshot.default_machine is not None:
        notice = (
            f"default_machine is {snapshot.default_machine}: plan, launch and run mean it, and simulate its devices"
        )
        yield from wrapped(f"{notice}; this host: --machine here", paper.room, style="bold yellow")
    yield from _devices(snapshot, paper)
    yield Text("")
    yield from job_table(snapshot, paper.room)
    if snapshot.queue_problem is not None:
        yield from wrapped(f"of jobs that wait little is known: {snapshot.queue_problem}", paper.room, style="bold red")
    if devices:
        yield Text("")
        yield from process_table(snapshot, paper.room)


def _header(snapshot: Snapshot, paper: _Paper) -> Text:
    inventory = snapshot.inventory
    text = Text(inventory.host, style="bold")
    if inventory.simulated:
        text.append(" (simulated)", style="bold yellow")
    fields = [
        f"driver {inventory.driver_version}" if inventory.driver_version else "",
        f"CUDA {inventory.cuda_version}" if inventory.cuda_version else "",
        number(len(inventory.cpus), "CPU") + (f" (load {snapshot.load:.1f})" if snapshot.load is not None else ""),
        format_mib(inventory.memory_mib) if inventory.memory_mib is not None else "",
    ]
    clock = Text(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.time)), style="dim")
    for field in fields:
        if field and text.cell_len + len(field) + clock.cell_len + 4 <= paper.width:
            text.append(f"  {field}")
    return _spread(text, clock, paper.width)


# ---- devices ----


def _devices(snapshot: Snapshot, paper: _Paper) -> Iterator[Text]:
    devices, memory = snapshot.inventory.devices, MemoryParts(snapshot)
    if len(devices) <= _MOST_BLOCKS:
        for device in devices:
            yield Text("")
            yield from _block(device, memory.of(device), snapshot, paper)
        return
    for device in devices:
        yield _line(device, memory.of(device), snapshot, paper)
    for text, usual in slowdowns(devices):
        yield from wrapped(text, paper.room, style="dim" if usual else "yellow")


def _block(device: Device, parts: Sequence[Part], snapshot: Snapshot, paper: _Paper) -> Iterator[Text]:
    name = _name(device, snapshot)
    flags, gauges = _flags(device), _gauges(device, paper)
    if name.cell_len + flags.cell_len + gauges.cell_len + 6 <= paper.width:
        yield _spread(Text.assemble(name, "   ", flags), gauges, paper.width)
    else:
        yield _spread(name, gauges, paper.width)
        if flags:
            yield Text.assemble("   ", flags)
    if device.problem is not None:
        yield from wrapped(f"{device.health}: {device.problem}", paper.room, style="bold red", indent="   ")
    if text := slowdown(device, unicode=paper.unicode):
        yield from wrapped(text, paper.room, style="dim" if is_usual(device) else "yellow", indent="   ")
    amount = Text(f"  {_used_of_total(device, parts):>19}")
    if parts:
        yield Text.assemble("   ", _bar(parts, paper.width - 3 - amount.cell_len, paper), amount)
        yield from flowed(_legend(parts, snapshot, paper), paper.width, indent=3, gap=3)
    elif device.health == "ok":
        yield Text("   memory: not reported by the driver", style="dim")


def _line(device: Device, parts: Sequence[Part], snapshot: Snapshot, paper: _Paper) -> Text:
    """Draw a device in one line, for hosts with many."""
    name = _name(device, snapshot)
    name.truncate(30, pad=True)
    if device.problem is not None:
        return Text.assemble(name, (f"  {device.health}: {device.problem}", "bold red"))
    gauges = Text(f"  {_percent(device.utilization_percent):>4}  ")
    gauges.append_text(_temperature(device, paper))
    gauges.append(f"  {_used_of_total(device, parts):>19}  ")
    room = paper.width - name.cell_len - gauges.cell_len
    return Text.assemble(name, gauges, _bar(parts, room, paper))


def _name(device: Device, snapshot: Snapshot) -> Text:
    text = Text.assemble((f"{device.label:<2} ", "bold"), (device.name, "bold"))
    if snapshot.inventory.simulated:
        text.append(" (simulated)", style="yellow")
    return text


def _flags(device: Device) -> Text:
    """What seldom changes; what is unusual stands out. A MIG instance shares it with its parent."""
    values: list[tuple[str, str]] = []
    if device.bus_id is not None and device.mig_index is None:
        values.append((device.bus_id, "dim"))
    if device.persistence_mode is not None:
        values.append(("persistence on", "dim") if device.persistence_mode else ("persistence off", "yellow"))
    if device.ecc_errors is not None:
        values.append((f"ECC {device.ecc_errors}", "bold red" if device.ecc_errors else "dim"))
    if device.compute_mode is not None:
        values.append((device.compute_mode.replace("_", " "), "dim" if device.compute_mode == "default" else "yellow"))
    if device.mig_mode is not None:
        values.append(("MIG on", "yellow") if device.mig_mode else ("MIG off", "dim"))
    return Text("  ").join(Text(text, style=style) for text, style in values)


def _gauges(device: Device, paper: _Paper) -> Text:
    """What changes from moment to moment, in columns; `-` for what the driver does not report."""
    values = (
        device.utilization_percent,
        device.temperature_c,
        device.power_w,
        device.fan_percent,
        device.performance_state,
    )
    if all(value is None for value in values):
        return Text("")
    watts = f"{_or_dash(device.power_w)}W / {_or_dash(device.power_limit_w)}W"
    state = "-" if device.performance_state is None else f"P{device.performance_state}"
    text = Text(f"util {_percent(device.utilization_percent):>4}  ")
    text.append_text(_temperature(device, paper))
    text.append(f"  {watts:>13}  {state:>3}  fan {_percent(device.fan_percent):>4}")
    return text


def _temperature(device: Device, paper: _Paper) -> Text:
    degrees = device.temperature_c
    text = f"{_or_dash(degrees)}{'°C' if paper.unicode else 'C'}"
    hot = degrees is not None and degrees >= _HOT_C
    return Text(f"{text:>5}", style="bold red" if hot else "yellow" if (degrees or 0) >= _WARM_C else "")


def _used_of_total(device: Device, parts: Sequence[Part]) -> str:
    used = device.memory_used_mib
    if used is None and parts:
        used = sum(part.mib for part in parts if part.kind in ("used", "foreign"))
    return f"{_or_dash(used)} / {_or_dash(device.memory_total_mib)} MiB"


def _bar(parts: Sequence[Part], width: int, paper: _Paper) -> Text:
    text = Text()
    for part, cells in zip(parts, cell_widths([part.mib for part in parts], max(width, 0)), strict=True):
        text.append(_glyph(part, paper) * cells, style=_colour(part))
    return text


def _glyph(part: Part, paper: _Paper) -> str:
    if paper.unicode and paper.colour:
        return _BLOCKS[part.kind]
    if part.job is None:
        return _LETTERS[part.kind]
    letter = chr(ord("A") + part.job % 26)
    return letter if part.kind == "used" else letter.lower()


def _colour(part: Part) -> str:
    return _PART_COLOURS[part.kind] if part.job is None else JOB_COLOURS[part.job % len(JOB_COLOURS)]


def _legend(parts: Sequence[Part], snapshot: Snapshot, paper: _Paper) -> Iterator[Text]:
    """Explain the bar's parts; nothing for a device that is all free."""
    if all(part.mib == 0 for part in parts if part.kind != "free"):
        return
    for part in parts:
        if part.job is None:
            if part.mib:
                yield Text.assemble(
                    (_glyph(part, paper), _colour(part)), f" {_PART_NAMES.get(part.kind, part.kind)} {part.mib}"
                )
        elif part.kind == "used":
            yield _job_legend(part, parts, snapshot, paper)


def _job_legend(part: Part, parts: Sequence[Part], snapshot: Snapshot, paper: _Paper) -> Text:
    job = snapshot.jobs[part.job or 0]
    leased = sum(each.mib for each in parts if each.job == part.job)
    amount = (
        f"{part.mib} used of {leased} leased" if part.mib else f"{leased} {'planned' if job.simulated else 'leased'}"
    )
    sample = part if part.mib else part._replace(kind="leased")
    return Text.assemble(
        (_glyph(sample, paper), _colour(part)),
        (f" {job.id}", "bold"),
        (" (simulated)" if job.simulated else "", "yellow"),
        f" {number(part.replicas, 'replica')}: {amount}",
    )


# ---- words ----


def _spread(left: Text, right: Text, width: int) -> Text:
    """Put one text at the left edge and one at the right; the left one gives way."""
    room = width - right.cell_len - 2
    if right and left.cell_len > room:
        left = left.copy()
        left.truncate(max(room, 0))
    return Text.assemble(left, " " * max(width - left.cell_len - right.cell_len, 0), right) if right else left


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
