"""Draw a plan: a bar to scale for every device, every device's sum, why, and warnings. It must not decide anything.

A terminal with colours gets blocks of colour; everything else
gets the same lines as plain text, where each part of a bar has another sign.
"""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TextIO

from gpusched.model.plan import DevicePlan, Plan, Replica
from gpusched.render.ansi import Text, colours_of, painted, width_of
from gpusched.render.table import cell_widths, flowed
from gpusched.render.text import index_runs
from gpusched.units import FRACTION_ONE, number

__all__ = ["draw_plan", "plan_text", "show_plan"]

_WIDEST: Final = 140
_NARROWEST: Final = 60
_PIPED: Final = 100
_BARS_EACH: Final = 16  # more devices than this are drawn as one bar for all that are alike
_MOST_GROUPS: Final = 32
_SHORTEST_BAR: Final = 12
_ASCII: Final = str.maketrans({"×": "x", "…": ".."})
_MOST_LABELS: Final = 4
_NAMES: Final = 18


class _Paint(NamedTuple):
    """How a part of a bar is drawn: its name, its style in colour, its sign without."""

    name: str
    style: str
    sign: str


class _Part(NamedTuple):
    """A part of a device's memory in MiB, with its labels, longest first."""

    paint: _Paint
    mib: int
    labels: tuple[str, ...] = ()


class _Group(NamedTuple):
    """Devices that one line can describe, and the replicas of the first of them in runs of one role and limit."""

    devices: list[DevicePlan]
    runs: list[list[Replica]]


# Colours that the palette of 256 has too, so that they are the same in every terminal.
_ROLE_STYLES: Final = (("black on #5fafff", "#"), ("black on #5fd75f", "="), ("black on #d787ff", "+"))
_MORE_ROLES: Final = ("black on #ffd75f", "%")
_CONTEXT: Final = _Paint("context", "black on #87afaf", ":")
_LEASED: Final = _Paint("leased", "black on #ffaf5f", "L")
_FOREIGN: Final = _Paint("foreign", "white on #d70000", "F")
_RESERVE: Final = _Paint("reserve", "white on #875f5f", "R")
_HEADROOM: Final = _Paint("headroom", "white on #585858", "-")
_FREE: Final = _Paint("free", "#d0d0d0 on #303030", ".")


def show_plan(plan: Plan, stream: TextIO) -> None:
    """Write the plan to `stream`: with colours to a terminal that has them, else as plain text; in ASCII if it must."""
    unicode = (stream.encoding or "").lower().replace("-", "") == "utf8"
    colours = colours_of(stream)
    for line in draw_plan(plan, width_of(stream, _PIPED), colour=colours > 0, unicode=unicode):
        text = painted(line.pieces, colours).rstrip()
        print(text if unicode else text.encode("ascii", "replace").decode(), file=stream)


def plan_text(plan: Plan) -> str:
    """Return the plan as plain text, in the width of a pipe."""
    lines = draw_plan(plan, _PIPED, colour=False, unicode=True)
    return "\n".join(line.plain.rstrip() for line in lines)


def draw_plan(plan: Plan, width: int, *, colour: bool, unicode: bool) -> list[Text]:
    """Return the lines of the drawing, none longer than `width`, which is held between 60 and 140 characters."""
    lines = _Drawing(plan, max(_NARROWEST, min(width, _WIDEST)), colour=colour).lines()
    if unicode:
        return lines
    return [Text.assemble(*((text.translate(_ASCII), style) for text, style in line.pieces)) for line in lines]


class _Drawing:
    """One plan at one width."""

    def __init__(self, plan: Plan, width: int, *, colour: bool) -> None:
        self.plan, self.width, self.colour = plan, width, colour
        self.replicas = {replica.name: replica for replica in plan.replicas}
        styles = [*_ROLE_STYLES, *[_MORE_ROLES] * len(plan.request.roles)]
        self.paints = {
            role.name: _Paint(role.name, *paint) for role, paint in zip(plan.request.roles, styles, strict=False)
        }
        self.groups = self._alike()

    def lines(self) -> list[Text]:
        lines = [*_folded(self._headline(), self.width), Text()]
        if self.plan.devices:
            each = [_Group([device], self._runs(device)) for device in self.plan.devices]
            lines += [*self._bars(each if len(each) <= _BARS_EACH else self.groups[:_MOST_GROUPS]), Text()]
            for group in self.groups[:_MOST_GROUPS]:
                lines += [part for line in self._sum(group) for part in _folded(line, self.width)]
                lines.append(Text())
            if len(self.groups) > _MOST_GROUPS:
                lines += [Text(f"{len(self.groups) - _MOST_GROUPS} more kinds of devices: see --json", "dim"), Text()]
        if without := self._without_devices():
            lines += [part for line in without for part in _folded(line, self.width)]
            lines.append(Text())
        lines += _bullets("why", self.plan.why, "bold", self.width)
        if self.plan.warnings:
            lines += [Text(), *_bullets("warnings", self.plan.warnings, "bold yellow", self.width)]
        return lines

    def _headline(self) -> Text:
        plan = self.plan
        on = number(len(plan.devices), "device") if plan.devices else "no device"
        where = plan.inventory.host + (" (simulated)" if plan.inventory.simulated else "")
        policy = "" if plan.policy == "balanced" else f", policy {plan.policy}"
        without = sum(replica.device_uuid is None for replica in plan.replicas) if plan.devices else 0
        replicas = number(len(plan.replicas) - without, "replica")
        beside = f", {without} without a device" if without else ""
        workload = f"   {plan.request.workload} on {where}{policy}"
        return Text.assemble((_counts(plan.counts), "bold"), f" {replicas} on {on}{beside}", (workload, "dim"))

    def _runs(self, device: DevicePlan) -> list[list[Replica]]:
        here = (self.replicas[name] for name in device.replicas)
        return [list(run) for _, run in groupby(here, key=lambda replica: (replica.role, replica.limit_mib))]

    def _alike(self) -> list[_Group]:
        """Group the devices that differ in nothing but their index and their replicas' ranks."""
        found: dict[tuple[object, ...], _Group] = {}
        for device in self.plan.devices:
            runs = self._runs(device)
            memory = (device.total_mib, device.reserved_mib, device.foreign_mib, device.leased_mib)
            placed = tuple((run[0].role, run[0].limit_mib, len(run)) for run in runs)
            found.setdefault((device.name, *memory, placed), _Group([], runs)).devices.append(device)
        return list(found.values())

    def _bars(self, groups: Sequence[_Group]) -> list[Text]:
        """Return a bar for each group, all on the scale of the largest device, and the legend."""
        titles = [_gpus(group.devices) for group in groups]
        margin = max(map(len, titles)) + 2
        largest = max(device.total_mib for device in self.plan.devices)
        lines, seen = list[Text](), dict[_Paint, None]()
        for title, group in zip(titles, groups, strict=True):
            parts = [part for part in self._parts(group) if part.mib > 0]
            seen |= dict.fromkeys(part.paint for part in parts)
            cells = max(_SHORTEST_BAR, (self.width - margin) * group.devices[0].total_mib // largest)
            lines.append(Text.assemble((f"{title:<{margin}}", "bold"), self._bar(parts, cells)))
        paints = [
            paint
            for paint in (*self.paints.values(), _CONTEXT, _LEASED, _FOREIGN, _RESERVE, _HEADROOM)
            if paint in seen
        ]
        legend = (self._swatch(paint).append(f" {paint.name}") for paint in (*paints, _FREE))
        return [*lines, Text(), *flowed(legend, self.width, indent=margin, gap=2)]

    def _parts(self, group: _Group) -> list[_Part]:
        device = group.devices[0]
        parts = []
        for role, paint in self.paints.items():
            mine = [replica for run in group.runs for replica in run if replica.role == role]
            limits = {replica.limit_mib for replica in mine}
            if len(mine) == 1:
                labels: tuple[str, ...] = (f"{role} {mine[0].limit_mib} MiB", f"{role} {mine[0].limit_mib}", role)
            else:
                several = number(len(mine), role)
                each = f" × {limits.pop()}" if len(limits) == 1 else ""
                labels = (f"{several}{each} MiB", f"{several}{each}", several, str(len(mine)))
            parts.append(_Part(paint, sum(replica.limit_mib for replica in mine), labels))
        shares = sum(replica.context_mib for run in group.runs for replica in run)
        for paint, mib in (
            (_CONTEXT, shares),
            (_LEASED, device.leased_mib),
            (_FOREIGN, device.foreign_mib),
            (_RESERVE, device.reserved_mib),
            (_HEADROOM, device.headroom_mib),
        ):
            parts.append(_Part(paint, mib, (f"{paint.name} {mib}", paint.name)))
        free = device.total_mib - sum(part.mib for part in parts)
        return [*parts, _Part(_FREE, free, (f"{free} MiB free", f"{free} free", "free"))]

    def _bar(self, parts: Sequence[_Part], cells: int) -> Text:
        widths = cell_widths([part.mib for part in parts], cells)
        return Text.assemble(
            *(
                (_filled(part, wide, " " if self.colour else part.paint.sign), part.paint.style)
                for part, wide in zip(parts, widths, strict=True)
            )
        )

    def _sum(self, group: _Group) -> list[Text]:
        """Return how a group's plannable memory came about, who gets it, and the sum spelled out."""
        device = group.devices[0]
        taken = [
            (device.reserved_mib, "reserve"),
            (device.foreign_mib, "foreign"),
            (device.leased_mib, "leased"),
            (device.headroom_mib, "headroom"),
        ]
        less = "".join(f" - {mib} {name}" for mib, name in taken if mib)
        lines = [
            Text.assemble((_gpus(group.devices), "bold"), (f"  {device.name}", "dim")),
            Text(f"  {device.total_mib}{less} = {device.plannable_mib} MiB plannable"),
        ]
        for run in group.runs:
            name = _names(run) if len(group.devices) == 1 else number(len(run), run[0].role)
            first = run[0]
            each = " each" if len(run) > 1 else ""
            threads = number(first.threads, "thread")
            amounts = f" {first.limit_mib:>6} MiB limit, fraction {_fraction(first)}, {threads}{each}"
            lines.append(Text.assemble("  ", self._swatch(self.paints[first.role]), f" {name:<{_NAMES}}{amounts}"))
        if not group.runs:
            return [*lines, Text("  nothing is placed here", "dim")]
        terms = [_term(run, alone=len(group.runs) == 1) for run in group.runs]
        # One limit holds on all whole devices of a replica, so that a larger one has more than that.
        beyond = device.planned_mib - sum(replica.share_mib for run in group.runs for replica in run)
        terms += [f"{beyond} beyond its limit"] if beyond else []
        total = f" = {device.planned_mib} of {device.plannable_mib} MiB"
        return [*lines, Text(f"  {' + '.join(terms)}{total}", "bold")]

    def _swatch(self, paint: _Paint) -> Text:
        return Text("  ", paint.style) if self.colour else Text(paint.sign)

    def _without_devices(self) -> list[Text]:
        lines = []
        without = [replica for replica in self.plan.replicas if replica.device_uuid is None]
        if without and self.plan.devices:
            lines.append(Text("no device", "bold"))
        for _, run in groupby(without, key=lambda replica: replica.role):
            mine = list(run)
            amounts = f"{number(len(mine[0].cpus), 'CPU')}, {number(mine[0].threads, 'thread')}, no limit"
            swatch = self._swatch(self.paints[mine[0].role])
            lines.append(Text.assemble("  ", swatch, f" {_names(mine):<{_NAMES}}  {amounts}"))
        return lines


def _filled(part: _Part, cells: int, fill: str) -> str:
    """Return the longest label of the part that has room in `cells`, filled up on both sides."""
    for label in part.labels:
        if len(label) + 2 <= cells:
            return f" {label} ".center(cells, fill)
    return fill * cells


def _term(run: Sequence[Replica], *, alone: bool) -> str:
    first = run[0]
    if len(run) > 1:
        return f"{len(run)} × ({first.limit_mib} + {first.context_mib})"
    return f"{first.limit_mib} + {first.context_mib}" if alone else f"({first.limit_mib} + {first.context_mib})"


def _names(run: Sequence[Replica]) -> str:
    """Return `learner.0`, or `actor.2-11`."""
    return run[0].name if len(run) == 1 else f"{run[0].name}-{run[-1].rank}"


def _fraction(replica: Replica) -> str:
    return f"{replica.fraction / FRACTION_ONE:.4f}"


def _counts(counts: Sequence[int]) -> str:
    """Return `[3, 10, 10, 10]`, or `[3, 63 × 10]` where that would be long."""
    if len(counts) <= _BARS_EACH:
        return str(list(counts))
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    texts = [f"{times} × {count}" if times > 1 else str(count) for count, times in runs]
    return f"[{', '.join(texts[:_BARS_EACH])}{', …' if len(texts) > _BARS_EACH else ''}]"


def _gpus(devices: Sequence[DevicePlan]) -> str:
    """Return `GPU 0`, `GPU 1-3` or `GPU 0, 2-5, …` for devices in their order."""
    labels = [device.label for device in devices]
    if not any(":" in label for label in labels):
        labels = index_runs([device.index for device in devices])
    return f"GPU {', '.join(labels[:_MOST_LABELS])}{', …' if len(labels) > _MOST_LABELS else ''}"


def _folded(line: Text, width: int) -> list[Text]:
    """Return the line in as many lines as it takes; its last piece is broken, the others only if they must be."""
    *first, (text, style) = line.pieces
    used = sum(len(before) for before, _ in first)
    if used + len(text) <= width:
        return [line]
    if first and used + text.index(word := text.split()[0]) + len(word) > width:  # without any room wrap never ends
        rest = textwrap.wrap(text.lstrip(), width, initial_indent="    ", subsequent_indent="    ")
        return [*_folded(Text.assemble(*first), width), *(Text(part, style) for part in rest)]
    start, *rest = textwrap.wrap(text, width, initial_indent=" " * used, subsequent_indent="    ")
    return [Text.assemble(*first, (start[used:], style)), *(Text(part, style) for part in rest)]


def _bullets(title: str, texts: Iterable[str], style: str, width: int) -> list[Text]:
    lines = [Text(title, style)]
    for text in texts:
        first, *rest = textwrap.wrap(text, width - 4, break_on_hyphens=False) or [""]
        lines += [Text(f"  - {first}"), *(Text(f"    {part}") for part in rest)]
    return lines
