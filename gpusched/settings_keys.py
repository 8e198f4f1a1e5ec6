"""The keys of the configuration file, and what each may have (see settings.py)."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

from gpusched.errors import UsageError
from gpusched.notify_settings import parse_notify
from gpusched.times import parse_span
from gpusched.units import parse_fraction, parse_mib

__all__ = ["ENGINES", "LOCAL", "KeptJobs", "expanded", "set_by"]

LOCAL: Final = "local"
"""The engine that has a job's processes run by this host."""

ENGINES: Final[dict[str, str]] = {
    LOCAL: "gpusched.engines.local",
    "slurm": "gpusched.engines.slurm.registration",
    "ray": "gpusched.engines.ray.registration",
}
"""What can have a job's processes run: this host, or a cluster. Each with its module (engines/registry.py)."""

_LEAST_CAP_MIB: Final = 8
"""Far above the beginning of a log that always stays (execution/log_cut.py)."""

_MOST_KEPT: Final = 10_000_000

_CHOICES: Final[dict[str, Collection[object]]] = {
    "overrun": ("warn", "stop"),
    "engine": ENGINES,
    "strict": (True, False),
}


class KeptJobs(NamedTuple):
    """Which jobs are kept that ended: those of the last `older_s` seconds, the latest `most`; None: all."""

    older_s: float | None = None
    most: int | None = None


def set_by(path: Path, key: str, value: object) -> dict[str, object]:
    """Return what a key of the file sets. Raises UsageError."""
    where = f"{path}: {key}"
    found: dict[str, object] = {}
    if key == "notify":
        found["notify"] = parse_notify(value, where, path.parent)
    elif key in _PARSED:
        name, parse = _PARSED[key]
        found[name] = parse(value, where)
        if key == "context":
            found["context_given"] = True
    elif key == "headroom":
        found["headroom"] = 0 if value == 0 and value is not False else parse_fraction(value, where)
    elif key == "state_dir" and isinstance(value, str) and value:
        found["state_dir"] = (path.parent / expanded(value, where)).absolute()
    elif isinstance(value, str | bool) and value in _CHOICES.get(key, ()):
        found[key] = value
    elif key == "overrun_grace" and _is_number(value, 0, 86400):
        found["overrun_grace_s"] = float(value)
    elif key == "most_jobs" and _is_number(value, 1, 10_000) and isinstance(value, int):
        found["most_jobs"] = value
    elif key == "default_machine" and isinstance(value, str) and value:
        is_path = "/" in value or value.endswith(".json")
        found["default_machine"] = str((path.parent / expanded(value, where)).absolute()) if is_path else value
    else:
        raise _not_understood(where, key)
    return found


def _not_understood(where: str, key: str) -> UsageError:
    """Return the error for a key that there is not, or with a value that it cannot have."""
    known = {
        "context": '"450MiB"',
        "headroom": "0.02",
        "state_dir": '"DIR"',
        "overrun": '"stop" or "warn"',
        "overrun_grace": "10",
        "most_jobs": "64",
        "strict": "false",
        "most_delay": '"2d"',
        "log_cap": '"256MiB"',
        "keep_jobs": '"90d" or 10000',
        "keep_logs": '"30d"',
        "idle_after": '"30m"',
        "idle_below": "1",
        "engine": _quoted(ENGINES),
        "default_machine": '"4x16GiB"',
    }
    if key in known:
        return UsageError(f"{where}: that value is not understood", f"such as {key} = {known[key]}")
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    names = ", ".join(f"{name} = {value}" for name, value in known.items())
    hint = f"did you mean {near[0]}?" if near else f"known keys: {names}; and the table [notify]"
    return UsageError(f"{where}: there is no such key", hint)


def expanded(value: str, where: str) -> Path:
    """Return a path as typed, in which `~` is a user's home. Raises UsageError, naming `where`, for no user's."""
    try:
        return Path(value).expanduser()
    except RuntimeError:  # ~name, and there is no such user
        raise UsageError(f"{where}: {value!r} begins with no user's home", "write the whole path") from None


def _seconds(value: object, where: str) -> float:
    if not isinstance(value, str):
        raise UsageError(f"{where}: {value!r} is no span of time", 'write it as in "90m", "2h" or "1d"')
    return parse_span(value, where)


def _cap(value: object, where: str) -> int:
    if value == "none" or (value == 0 and value is not False):
        return 0
    mib = parse_mib(value, where)
    if mib < _LEAST_CAP_MIB:
        raise UsageError(f"{where}: {value!r} is less than {_LEAST_CAP_MIB} MiB", 'give more, or "none"')
    return mib


def _percent(value: object, where: str) -> float:
    if not _is_number(value, 0, 100) or not value:
        raise UsageError(f"{where}: {value!r} is no percentage", "write a number above 0 and at most 100")
    return float(value)


def _kept_jobs(value: object, where: str) -> KeptJobs:
    if _is_number(value, 0, _MOST_KEPT) and isinstance(value, int):
        return KeptJobs(most=value)
    if not isinstance(value, str):
        raise UsageError(f"{where}: {value!r} is no span of time, and no number", 'write it as "90d", or as 10000')
    return KeptJobs(older_s=parse_span(value, where))


_PARSED: Final[dict[str, tuple[str, Callable[[object, str], object]]]] = {
    "context": ("context_mib", parse_mib),
    "most_delay": ("most_delay_s", _seconds),
    "idle_after": ("idle_after_s", _seconds),
    "idle_below": ("idle_below", _percent),
    "log_cap": ("log_cap_mib", _cap),
    "keep_jobs": ("keep_jobs", _kept_jobs),
    "keep_logs": ("keep_logs_s", _seconds),
}


def _quoted(names: Iterable[str]) -> str:
    *others, last = (f'"{name}"' for name in names)
    return f"{', '.join(others)} or {last}"


def _is_number(value: object, least: float, most: float) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
