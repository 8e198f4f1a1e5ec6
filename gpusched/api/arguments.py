"""The arguments of the Python API, once for all functions: names, types and units, and how they become options.

They are those of the command line. Memory is text with a unit ("6GiB") or whole MiB; a span is text ("90s", "2h") or
seconds. Each default is that of the command line.
"""

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Annotated, Any, Final, Literal, TypedDict, get_args, get_type_hints

import msgspec

from gpusched.api.plan_arguments import (
    Function,
    PlanArguments,
    amount,
    as_text,
    chosen_of,
    with_signature,
)
from gpusched.api.validation import SomeJobs, require_ids, require_type
from gpusched.engines.cluster.options import ClusterOptions
from gpusched.errors import UsageError
from gpusched.execution.command_options import command_request
from gpusched.execution.plan_options import PlanOptions
from gpusched.model.job import QueueChange, Submission
from gpusched.notify_settings import check_target
from gpusched.times import parse_moment, parse_span

__all__ = [
    "AmountArguments",
    "Begins",
    "ChangeArguments",
    "ClusterArguments",
    "CommandArguments",
    "ExportArguments",
    "JoinArguments",
    "JoiningArguments",
    "LaunchArguments",
    "ListenArguments",
    "ManifestArguments",
    "PlanArguments",
    "ProgramArguments",
    "QueueArguments",
    "RunArguments",
    "SubmitArguments",
    "SweepArguments",
    "cluster_options",
    "command_texts",
    "follows",
    "queue_change",
    "queue_fields",
    "require_no_queue",
    "require_types",
    "span_text",
    "with_arguments",
]

Begins = Literal["now", "later", "never"]
"""When a job is to begin: what it needs must be there `now`, or only when its turn comes."""


class QueueArguments(TypedDict, total=False):
    """When a job may start, and for how long it may run."""

    name: str | None
    """A name for people, by which the job can be called; a second living `train` is called `train.2`."""
    group: str | None
    """A group that the job counts in, of which a limited number may run: see `groups.change_group`."""
    priority: int
    """Of jobs that wait, the highest starts first."""
    after: SomeJobs
    """Jobs that must have succeeded before, each a Job or its id."""
    after_any: SomeJobs
    """Jobs that must have ended before, in whatever way."""
    at: str | dt.datetime | None
    """Not before this time: "14:30", "+2h", or a datetime."""
    time_limit: float | str | None
    """Stop it after so long."""
    idle_end: float | str | None
    """End it once its devices have done nothing for so long; it is warned before."""
    hold: bool
    """Keep it in the queue until Job.release."""
    requeue: bool
    """Queue it again if it is lost, as by a reboot."""
    notify: str | None
    """A command that is run, or a URL that gets a POST, once it has ended, beside what the configuration has."""


class AmountArguments(TypedDict, total=False):
    """How much of the devices a command has: one of these."""

    num_gpus: int | str | None
    """How many whole devices; 0 for none. Of run 1 where no other amount is given."""
    memory: int | str | None
    """How much memory of one device; "auto": what earlier runs needed, "auto:6GiB": until that is known, 6 GiB."""
    fraction: float | str | None
    """A part of one device, above 0 and at most 1."""


class CommandArguments(AmountArguments, total=False):
    """Which devices a command has."""

    processes: int | str | None
    """How many of its processes use a device at once."""
    gpus: str | None
    """Which devices, as of plan."""
    exclude_gpus: str | None
    """All devices but these."""
    ignore_foreign: int | str | None
    """Processes of no job to plan over, as of plan."""
    machine: str | None
    """A machine that is not here, whose devices are simulated."""
    grace: float | str | None
    """How long it may save its work once it is asked to end."""


class ClusterArguments(TypedDict, total=False):
    """What runs the processes, if not this host, and what a cluster gives to them."""

    engine: str | None
    """"local" (this host), "slurm" or "ray"; the workload's or the configuration's where none is given."""
    nodes: Annotated[int, msgspec.Meta(ge=1)] | None
    """On how many nodes."""
    gpus_per_node: Annotated[int, msgspec.Meta(ge=0, le=64)] | None
    """Whole GPUs of each node."""
    cpus_per_node: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None
    """CPUs of each node; one for each of its processes where none is given."""
    device_memory: int | str | None
    """The memory of one of its GPUs, by which processes are given to nodes."""
    patience: float | str | None
    """A node that gets no message of the learner for so long ends its processes."""
    engine_options: Mapping[str, str | Sequence[str]] | None
    """The engine's own options: {"site": ["--partition=gpu"]} of Slurm, {"address": "head:6379"} of Ray."""


class ListenArguments(TypedDict, total=False):
    """Whether actors of other hosts may join."""

    listen: str | None
    """Where the learner takes actors of other hosts, with a key: "tcp://0.0.0.0:5555"."""
    insecure: bool
    """Without keys, in plain text; on loopback only."""


class JoiningArguments(TypedDict, total=False):
    """How this host joins a learner on another one."""

    key: str | os.PathLike[str] | None
    """The file of a key of that job, which only you may read."""
    workload: str | os.PathLike[str] | None
    """The workload on this host, if it is not found by its name."""
    different: bool
    """Go on though code or versions are not the learner's."""
    patience: float | str
    """End when the learner sends nothing for so long; "15m" where none is given."""
    insecure: bool
    """Of a learner without keys, on loopback only."""


class ManifestArguments(TypedDict, total=False):
    """What is written down of a plan."""

    image: str | None
    """The image in which the workload is installed; a placeholder where none is given."""
    name: str | None
    """What the job is called there; as the workload where none is given."""
    share_resource: Literal["none", "nvidia", "hami"] | None
    """Of kubernetes: the resource that stands for a part of a GPU: "nvidia" (where none is given), "hami" or "none"."""
    keys: str | os.PathLike[str] | None
    """Of kubernetes: the directory of the key files for the Secret; those that are missing are made."""
    json: bool
    """JSON instead of YAML."""


class LaunchArguments(PlanArguments, ListenArguments, ClusterArguments):
    """All arguments of launch."""


class SubmitArguments(PlanArguments, ListenArguments, QueueArguments, ClusterArguments):
    """All arguments of submit."""


class ExportArguments(PlanArguments, ManifestArguments, ClusterArguments):
    """All arguments of export, of a cluster those of Slurm."""


class JoinArguments(PlanArguments, JoiningArguments, QueueArguments):
    """All arguments of join."""


class ProgramArguments(TypedDict, total=False):
    """How a command runs."""

    env: Mapping[str, str] | None
    """Variables beside those of this process: {"LR": "1e-3"}."""
    cwd: str | os.PathLike[str] | None
    """The directory that it runs in; that of this process where none is given."""
    retry: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None
    """How often it is started again after it failed; not of a command in this process's place."""


class RunArguments(CommandArguments, ProgramArguments, QueueArguments):
    """All arguments of run."""


class ChangeArguments(AmountArguments, QueueArguments):
    """All arguments of edit and rerun; an amount is that of a command."""


class SweepArguments(CommandArguments, ProgramArguments, PlanArguments, QueueArguments):
    """All arguments of sweep: those of run, and for a workload those of submit on this host."""


def queue_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given of QueueArguments as fields of a Submission. Raises UsageError."""
    return {name: value for name, value in _queue_values(given).items() if value not in _UNUSED}


def queue_change(given: Mapping[str, Any]) -> QueueChange:
    """Return what is given of ChangeArguments as changes of a Submission; "none" takes one away. Raises UsageError."""
    gone = {name for name in _REMOVABLE if given.get(name) in ("none", ["none"], ("none",))}
    fields = _queue_values({name: value for name, value in given.items() if name not in gone})
    for name in gone:
        fields[_FIELDS.get(name, name)] = () if name.startswith("after") else None
    if amounts := command_texts(given, AmountArguments):
        fields["command"] = command_request(amounts)
    return QueueChange(**fields)


def command_texts(given: Mapping[str, Any], table: type) -> dict[str, str]:
    """Return what is given of `table`, which are arguments of a command, as it is typed on the command line."""
    texts = chosen_of(given, table)
    if "memory" in texts:
        texts["memory"] = amount(texts["memory"])
    return as_text(texts)


def _queue_values(given: Mapping[str, Any]) -> dict[str, Any]:
    chosen = chosen_of(given, QueueArguments)
    for name in ("after", "after_any"):
        if name in chosen:
            chosen[name] = require_ids(chosen[name], name)
    if isinstance(chosen.get("at"), dt.datetime):
        chosen["at"] = chosen["at"].isoformat()
    for name in filter(chosen.__contains__, _SPANS):
        chosen[name] = span_text(chosen[name], name)
    kinds = get_type_hints(Submission, include_extras=True)  # with bounds
    for name, value in chosen.items():
        require_type(value, str if name in {"name", "group", "at", "notify"} else kinds.get(name, str), name)
    _require_names(chosen)
    if "notify" in chosen:
        check_target(chosen["notify"], "--notify")
    if "at" in chosen:
        chosen["at"] = parse_moment(chosen["at"], dt.datetime.now().astimezone(), "--at")
    for name in filter(chosen.__contains__, _SPANS):
        chosen[name] = parse_span(chosen[name], f"--{name.replace('_', '-')}")
    return {_FIELDS.get(name, name): value for name, value in chosen.items()}


def _require_names(chosen: Mapping[str, Any]) -> None:
    for name in ("name", "group"):
        if chosen.get(name) == "":
            raise UsageError(f"--{name}: it is empty", "leave it out, or give one")
        if len(chosen.get(name, "")) > _LONGEST_NAME:
            raise UsageError(f"--{name}: {len(chosen[name])} characters are too many", f"give at most {_LONGEST_NAME}")


def require_no_queue(queue: Mapping[str, Any]) -> None:
    """Raise UsageError for fields of the queue that are used: what starts now or not at all stands in none."""
    if queue:
        used = (f"--{name.removesuffix('_s').replace('_', '-')}" for name in queue)
        hint = (
            "leave it out, or add -d (in Python: submit it, or detach=True), for a job that starts when its turn comes"
        )
        raise UsageError(f"{' and '.join(used)} belongs to a job in the queue", hint)


def require_types(given: Mapping[str, Any], table: type) -> None:
    """Raise UsageError for what is given of `table` and is of another type there, or out of its bounds."""
    for name, kind in get_type_hints(table, include_extras=True).items():
        if isinstance(value := given.get(name), os.PathLike):
            value = os.fspath(value)
        paths = os.PathLike[str] in get_args(kind)  # which msgspec does not know
        if name in given:
            require_type(value, str | None if paths else kind, name)


def cluster_options(given: Mapping[str, Any]) -> ClusterOptions:
    """Return what is given of ClusterArguments as it is typed on the command line. Raises UsageError."""
    chosen = chosen_of(given, ClusterArguments)
    if "device_memory" in chosen:
        chosen["device_memory"] = amount(chosen["device_memory"])
    if "patience" in chosen:
        chosen["patience"] = span_text(chosen["patience"], "patience")
    require_types(chosen, ClusterArguments)
    own = chosen.pop("engine_options", {})
    chosen["own"] = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in own.items()}
    return ClusterOptions(**chosen)


def with_arguments(table: type) -> Callable[[Function], Function]:
    """Return a decorator that gives a function of **keywords the signature of `table`, for help() and completion."""
    return with_signature(table, _DEFAULTS)


_LONGEST_NAME: Final = 200
_SPANS: Final = ("time_limit", "idle_end")
_FIELDS: Final = {name: f"{name}_s" for name in _SPANS}
_REMOVABLE: Final = ("after", "after_any", "at", "group", "name", "notify", "time_limit", "idle_end")
_UNUSED: Final = (0, (), False)
_DEFAULTS: Final[Mapping[str, Any]] = {
    **PlanOptions._field_defaults,
    "priority": 0,
    **dict.fromkeys(("after", "after_any"), ()),
    **dict.fromkeys(("hold", "requeue", "insecure", "different", "json"), False),
}


def follows(queue: Mapping[str, Any]) -> bool:
    """Return whether jobs go before one with these fields of the queue."""
    return "after" in queue or "after_any" in queue


def span_text(span: Any, name: str) -> str | None:
    """Return a span as text; a number is seconds. Raises UsageError for what is neither."""
    text: str | None = f"{float(span):.3f}s" if isinstance(span, Real) else span
    require_type(text, str | None, name)
    return text
