"""Turn a workload file's document into a Workload, or name the key of the file that is wrong and how to mend it."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args

from gpusched.errors import UsageError, WorkloadError
from gpusched.model.workload import (
    Devices,
    Memory,
    Restart,
    RestartPolicy,
    Role,
    Setting,
    Workload,
    memory_asked,
)
from gpusched.settings import ENGINES
from gpusched.units import parse_fraction, parse_mib

__all__ = ["parse_workload"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PLACEHOLDER: Final = re.compile(r"(?<![{$])\{([A-Za-z_]\w*)\}(?!\})")
_POLICIES: Final = {policy: policy for policy in get_args(RestartPolicy)}
_MOST_THREADS: Final = 1024
_MOST_REPLICAS: Final = 100_000
_MOST_DEVICES: Final = 1024


def parse_workload(document: Mapping[str, object], path: Path) -> Workload:
    """Return the workload that `document`, read from `path`, describes.

    Raises WorkloadError naming the file, the key and the fix, for an unknown key, a wrong type or a value out of range.
    """
    top = _Table(document, path, "")
    top.only("name", "roles", "job")
    tables = top.table("roles", required=True)
    roles = tuple(_role(name, tables.table(name)) for name in tables.values)
    if not roles:
        raise top.error("roles", "has no role", "add a table such as [roles.learner]")
    job = top.table("job")
    job.only("leader", "preload", "settings", "stop_grace", "requeue", "engine", "listen", "memory_options")
    listen, listen_unless = _listen(job)
    workload = Workload(
        name=top.name("name", path.parent.name),
        roles=roles,
        leader=_leader(job, roles),
        preload=job.texts("preload"),
        settings=_settings(job),
        stop_grace_s=job.number("stop_grace", 10.0, 0.1, 3600.0),
        requeue=job.yes("requeue"),
        engine=_engine(job),
        listen=listen,
        listen_unless=listen_unless,
        memory_options=job.texts("memory_options"),
        path=path,
    )
    if workload.memory_options and workload.settings is None:
        hint = 'name the class of the settings, such as settings = "my.module:Settings"'
        raise job.error("settings", "is missing, and memory_options names one of them", hint)
    if workload.conditional and workload.settings is None:
        hint = 'name the class of the settings, such as settings = "my.module:Settings"'
        raise job.error("settings", "is missing, and `when` or `unless` names one of them", hint)
    return workload


def _leader(job: "_Table", roles: tuple[Role, ...]) -> str | None:
    if "leader" not in job.values:
        return None
    leader = job.text("leader")
    if any(role.name == leader and role.when for role in roles):
        raise job.error("leader", f"{leader!r} may be absent", f"leave out roles.{leader}.when")
    known = [role.name for role in roles if role.count > 0 and not role.when]
    if leader not in known:
        raise job.error("leader", f"{leader!r} is not a role with a replica", f"name one of: {', '.join(known)}")
    return leader


def _engine(job: "_Table") -> str | None:
    if "engine" not in job.values:
        return None
    engine = job.text("engine")
    if engine not in ENGINES:
        raise job.error("engine", f"is {engine!r}", f"use one of: {', '.join(ENGINES)}")
    return engine


def _listen(job: "_Table") -> tuple[bool, tuple[tuple[str, Setting], ...]]:
    """Return whether the learner can take actors of other hosts, and the settings with which it cannot."""
    if not isinstance(job.values.get("listen"), dict):
        return job.yes("listen", default=True), ()
    listen = job.table("listen")
    listen.only("unless")
    return True, _conditions(listen, "unless")


def _settings(job: "_Table") -> str | None:
    if "settings" not in job.values:
        return None
    settings = job.text("settings")
    if not _CLASS.fullmatch(settings):
        raise job.error("settings", f"is {settings!r}", 'name a class, such as settings = "my.module:Settings"')
    return settings


def _role(name: str, table: "_Table") -> Role:
    if not _NAME.fullmatch(name):
        raise table.error(
            "", "is not a name for a role", "use lower-case letters, digits, - and _, such as [roles.actor]"
        )
    table.only("command", "count", "memory", "devices", "restart", "threads", "when")
    command = _command(table)
    threads, least_threads = _threads(table)
    return Role(
        name=name,
        command=command,
        count=table.whole("count", 1, 0, _MOST_REPLICAS),
        memory=_memory(table) if "memory" in table.values else None,
        devices=_devices(table) if "devices" in table.values else None,
        restart=_restart(table.table("restart")),
        threads=threads,
        least_threads=least_threads,
        when=_conditions(table, "when") if "when" in table.values else (),
    )


def _command(table: "_Table") -> tuple[str, ...]:
    """Return a role's command. What stands in braces is a placeholder, but for a shell's `${NAME}`."""
    command = table.texts("command")
    if not command:
        raise table.error("command", "is missing or empty", 'add command = ["{python}", "-m", "my.module"]')
    unknown = (name for word in command for name in _PLACEHOLDER.findall(word) if name != "python")
    for name in unknown:
        near = "did you mean {python}? " if get_close_matches(name.lower(), ["python"]) else ""
        ours = "" if near else "what a replica knows is in its environment, such as $GPUSCHED_RANK; "
        as_it_stands = f"for the text itself double the braces: {{{{{name}}}}}"
        raise table.error("command", f"has {{{name}}}, which stands for nothing", f"{near}{ours}{as_it_stands}")
    return command


def _memory(role: "_Table") -> Memory:
    """Return what a role needs: a table, or the text `auto`, also with an amount, which is its minimum."""
    if isinstance(role.values["memory"], str) and role.values["memory"].startswith("auto"):
        try:
            least, first = memory_asked(role.values["memory"], role.where("memory"))
        except UsageError as error:
            raise WorkloadError(error.message, error.hint) from None
        return Memory(min_mib=least, first_mib=first)
    table = role.table("memory")
    table.only("min", "share", "max", "unless")
    if "min" not in table.values:
        raise table.error("min", "is missing", 'add the least that one replica needs, such as min = "512MiB"')
    try:
        least, first = memory_asked(table.values["min"], table.where("min"))
        share = parse_fraction(table.values["share"], table.where("share")) if "share" in table.values else None
        most = parse_mib(table.values["max"], table.where("max")) if "max" in table.values else None
    except UsageError as error:
        raise WorkloadError(error.message, error.hint) from None
    if most is not None and most < least:
        raise table.error("max", f"is {most} MiB, less than min, {least} MiB", "give a larger max, or leave it out")
    unless = _conditions(table, "unless") if "unless" in table.values else ()
    return Memory(min_mib=least, share=share, max_mib=most, unless=unless, first_mib=first)


def _devices(table: "_Table") -> Devices:
    """Return how many whole devices a replica gets; an amount of memory beside them would mean nothing."""
    if "memory" in table.values:
        hint = "keep `devices` for whole GPUs, or `memory` for a part of one"
        raise table.error("devices", "stands beside memory, and a role has either", hint)
    value = table.values["devices"]
    if value == "all":
        return "all"
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_DEVICES:
        raise table.error("devices", f"is {value!r}", f'give a whole number from 1 to {_MOST_DEVICES}, or "all"')
    return value


def _conditions(table: "_Table", key: str) -> tuple[tuple[str, Setting], ...]:
    settings = table.table(key)
    if not settings.values:
        raise table.error(key, "is empty", 'name a setting and its value, such as { inference = "learner" }')
    return tuple((name, settings.setting(name)) for name in sorted(settings.values))


def _threads(table: "_Table") -> tuple[int | None, int]:
    """Return a role's number of threads, None if the plan decides, and the least that the plan may give it."""
    value = table.values.get("threads")
    if isinstance(value, dict):
        threads = table.table("threads")
        threads.only("min")
        if not threads.values:
            raise threads.error("min", "is missing", "add the least that one replica needs, such as min = 2")
        return None, threads.whole("min", 1, 1, _MOST_THREADS)
    return None if value is None else table.whole("threads", 1, 1, _MOST_THREADS), 1


def _restart(table: "_Table") -> Restart:
    table.only("policy", "max")
    policy = table.text("policy") if "policy" in table.values else "on-failure"
    if policy not in _POLICIES:
        raise table.error("policy", f"is {policy!r}", f"use one of: {', '.join(_POLICIES)}")
    return Restart(policy=_POLICIES[policy], max=table.whole("max", 3, 0, 1_000_000))


class _Table:
    """One table of the document, which knows its file and its dotted key, so that every complaint can name them."""

    def __init__(self, values: Mapping[str, object], path: Path, prefix: str) -> None:
        self.values, self._path, self._prefix = values, path, prefix

    def where(self, key: str) -> str:
        dotted = ".".join(part for part in (self._prefix, key) if part)
        return f"{self._path}: {dotted}"

    def error(self, key: str, what: str, fix: str) -> WorkloadError:
        return WorkloadError(f"{self.where(key)} {what}", fix)

    def only(self, *known: str) -> None:
        for key in self.values:
            if key not in known:
                raise self.error(key, "is not a known key", f"known here: {', '.join(known)}")

    def table(self, key: str, *, required: bool = False) -> "_Table":
        value = self.values.get(key, None if required else {})
        if not isinstance(value, dict):
            shape = "is missing" if value is None else f"is {value!r}, not a table"
            raise self.error(key, shape, f"write it as a table, [{'.'.join(filter(None, (self._prefix, key)))}]")
        return _Table(value, self._path, ".".join(filter(None, (self._prefix, key))))

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value:
            raise self.error(key, f"is {value!r}, not a text", f'write {key} = "..."')
        return value

    def setting(self, key: str) -> Setting:
        value = self.values[key]
        if not isinstance(value, bool | int | float | str):
            raise self.error(key, f"is {value!r}", "give one text, number, true or false")
        return value

    def name(self, key: str, default: str) -> str:
        value = self.text(key) if key in self.values else default
        if not _NAME.fullmatch(value):
            raise self.error(key, f"is {value!r}", "use lower-case letters, digits, - and _, at most 32")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, f"is {value!r}, not a list of texts", f'write {key} = ["...", "..."]')
        return tuple(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, f"is {value!r}", f"give a whole number from {least} to {most}")
        return value

    def yes(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r}", "write true or false")
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        value = self.values.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, f"is {value!r}", f"give a number from {least:g} to {most:g}")
        return float(value)
