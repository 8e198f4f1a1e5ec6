"""The arguments of the Python API, once for all functions: names, types and units, and how they become options.

They are those of the command line. Memory is text with a unit ("6GiB") or whole MiB; a span is text ("90s", "2h") or
seconds. Each default is that of the command line.
"""

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Annotated, Any, Final, Literal, TypedDict, get_type_hints

import msgspec

from gpusched.api.plan_arguments import (
    Function,
    PlanArguments,
    amount,
    as_text,
    chosen_of,
    require_known,
    with_signature,
)
from gpusched.api.validation import SomeJobs, require_ids, require_list, require_type
from gpusched.engines.cluster.options import ClusterOptions
from gpusched.errors import UsageError
from gpusched.execution.command_options import CommandOptions
from gpusched.execution.plan_options import PlanOptions, machine_meant
from gpusched.execution.queue_options import QueueOptions, parse_grace
from gpusched.model.job import ProcessIdentity, Submission
from gpusched.settings import Settings, machine_typed

__all__ = [
    "Begins",
    "ClusterArguments",
    "CommandArguments",
    "ExportArguments",
    "JoinArguments",
    "JoiningArguments",
    "LaunchArguments",
    "ListenArguments",
    "PlanArguments",
    "QueueArguments",
    "RunArguments",
    "SubmitArguments",
    "cluster_options",
    "command_submission",
    "queue_options",
    "span_text",
    "with_arguments",
]

Begins = Literal["now", "later", "never"]
"""When a job is to begin: what it needs must be there `now`, or only when its turn comes."""


class QueueArguments(TypedDict, total=False):
    """When a job may start, and for how long it may run."""

    name: str | None
    """A name for people."""
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
    hold: bool
    """Keep it in the queue until Job.release."""
    requeue: bool
    """Queue it again if it is lost, as by a reboot."""


class CommandArguments(TypedDict, total=False):
    """Which devices a command has, and how much of them."""

    num_gpus: int | str | None
    """How many whole devices; 0 for none. 1 where no other amount is given."""
    memory: int | str | None
    """How much memory of one device."""
    fraction: float | str | None
    """A part of one device, above 0 and at most 1."""
    processes: int | str | None
    """How many of its processes use a device at once."""
    gpus: str | None
    """Which devices, as of plan."""
    exclude_gpus: str | None
    """All devices but these."""
    machine: str | None
    """A machine that is not here, whose devices are simulated."""
    grace: float | str | None
    """How long it may save its work once it is asked to end."""


class ClusterArguments(TypedDict, total=False):
    """What runs the processes, if not this host, and what a cluster gives to them."""

    engine: str | None
    """"local" (this host), "slurm" or "ray"; the workload's or the configuration's where none is given."""
    nodes: int | None
    """On how many nodes."""
    gpus_per_node: int | None
    """Whole GPUs of each node."""
    cpus_per_node: int | None
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
    """Of kubernetes: by what the site gives out GPUs; "nvidia" where none is given."""
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


class RunArguments(CommandArguments, QueueArguments):
    """All arguments of run."""


def queue_options(given: Mapping[str, Any]) -> QueueOptions:
    """Return what is given of QueueArguments as it is typed on the command line. Raises UsageError for a wrong type."""
    chosen = chosen_of(given, QueueArguments)
    for name in ("after", "after_any"):
        if name in chosen:
            chosen[name] = require_ids(chosen[name], name)
    if isinstance(chosen.get("at"), dt.datetime):
        chosen["at"] = chosen["at"].isoformat()
    if "time_limit" in chosen:
        chosen["time_limit"] = span_text(chosen["time_limit"], "time_limit")
    kinds = get_type_hints(Submission, include_extras=True) | {"name": str}  # with bounds; QueueOptions has the name's
    for name, value in chosen.items():
        require_type(value, str if name == "at" else kinds.get(name, str), name)
    return QueueOptions()._replace(**chosen)


def cluster_options(given: Mapping[str, Any]) -> ClusterOptions:
    """Return what is given of ClusterArguments as it is typed on the command line. Raises UsageError."""
    chosen = chosen_of(given, ClusterArguments)
    if "device_memory" in chosen:
        chosen["device_memory"] = amount(chosen["device_memory"])
    if "patience" in chosen:
        chosen["patience"] = span_text(chosen["patience"], "patience")
    for name, value in chosen.items():
        require_type(value, _CLUSTER[name], name)
    own = chosen.pop("engine_options", {})
    chosen["own"] = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in own.items()}
    return ClusterOptions(**chosen)


def command_submission(
    command: Sequence[str | os.PathLike[str]],
    given: Mapping[str, Any],
    settings: Settings,
    launcher: ProcessIdentity | None = None,
) -> Submission:
    """Return the submission of a command with what is `given` of RunArguments; see execution.submission.

    Raises UsageError (NoProgram, NotExecutable) and HostFault.
    """
    from gpusched.execution.requirements import require_program
    from gpusched.execution.submission import command_submission as submission

    require_known(given, RunArguments)
    argv = _command_line(command)
    queue, wish = queue_options(given), _command_options(given)
    needs_none = wish.need().devices == 0
    wish = wish._replace(machine=machine_typed(wish.machine) if needs_none else machine_meant(wish.machine, settings))
    grace_s = parse_grace(span_text(given.get("grace"), "grace"))
    found = submission(argv, wish, queue, launcher, grace_s)
    if not queue.follows:  # what goes before may still make the program
        require_program(argv[0])
    return found


def with_arguments(table: type) -> Callable[[Function], Function]:
    """Return a decorator that gives a function of **keywords the signature of `table`, for help() and completion."""
    return with_signature(table, _DEFAULTS)


_CLUSTER: Final[Mapping[str, Any]] = {
    "engine": str,
    "nodes": Annotated[int, msgspec.Meta(ge=1)],
    "gpus_per_node": Annotated[int, msgspec.Meta(ge=0, le=64)],
    "cpus_per_node": Annotated[int, msgspec.Meta(ge=1, le=4096)],
    "device_memory": str,
    "patience": str,
    "engine_options": dict[str, str | list[str]],
}
_DEFAULTS: Final[Mapping[str, Any]] = {
    **PlanOptions._field_defaults,
    **QueueOptions._field_defaults,
    **dict.fromkeys(("insecure", "different", "json"), False),
}


def _command_options(given: Mapping[str, Any]) -> CommandOptions:
    """Return what is given of CommandArguments but `grace`, as it is typed on the command line."""
    texts = chosen_of(given, CommandArguments)
    texts.pop("grace", None)
    if "memory" in texts:
        texts["memory"] = amount(texts["memory"])
    return CommandOptions()._replace(**as_text(texts))


def _command_line(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return a program and its arguments, paths as text. Raises UsageError for anything else."""
    if isinstance(command, str) or not command:
        hint = 'such as ["python", "a.py"]'
        raise UsageError(f"command: {command!r} is no list of a program and its arguments", hint)
    parts = require_list(command, "command")
    found = tuple(os.fspath(part) if isinstance(part, os.PathLike) else part for part in parts)
    require_type(found, tuple[str, ...], "command")
    return found


def span_text(span: Any, name: str) -> str | None:
    """Return a span as text; a number is seconds. Raises UsageError for what is neither."""
    text: str | None = f"{float(span):.3f}s" if isinstance(span, Real) else span
    require_type(text, str | None, name)
    return text
