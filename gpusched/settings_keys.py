"""The keys of the configuration file, and what each may have (see settings.py)."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

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


class KeptJobs(NamedTuple):
    """Which jobs are kept that ended: those of the last `older_s` seconds, the latest `most`; None: all."""

    older_s: float | None = None
    most: int | None = None


def set_by(path: Path, key: str, value: object) -> dict[str, object]:
    """Return what a key of the file sets. Raises UsageError."""
    where = f"{path}: {key}"
    if key == "notify":
        return {"notify": parse_notify(value, where, path.parent)}
    if key not in _KEYS:
        raise _unknown(where, key)
    name, example, read = _KEYS[key]
    try:
        found = read(value, where)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: that value is not understood: {error}", f"such as {key} = {example}") from None
    if key == "state_dir" or (key == "default_machine" and ("/" in found or found.endswith(".json"))):
        place = (path.parent / expanded(found, where)).absolute()
        found = place if key == "state_dir" else str(place)
    return {name: found} | ({"context_given": True} if key == "context" else {})


def _unknown(where: str, key: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(key, _KEYS, n=1)
    names = ", ".join(f"{name} = {one.example}" for name, one in _KEYS.items())
    hint = f"did you mean {near[0]}?" if near else f"known keys: {names}; and the table [notify]"
    return UsageError(f"{where}: there is no such key", hint)


def expanded(value: str, where: str) -> Path:
    """Return a path as typed, in which `~` is a user's home. Raises UsageError, naming `where`, for no user's."""
    try:
        return Path(value).expanduser()
    except RuntimeError:  # ~name, and there is no such user
        raise UsageError(f"{where}: {value!r} begins with no user's home", "write the whole path") from None


def _of(kind: Any) -> Callable[[object, str], Any]:
    return lambda value, _: msgspec.convert(value, kind)


def _headroom(value: object, where: str) -> int:
    return 0 if value == 0 and value is not False else parse_fraction(value, where)


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


def _kept_jobs(value: object, where: str) -> KeptJobs:
    if isinstance(value, str):
        return KeptJobs(older_s=parse_span(value, where))
    return KeptJobs(most=msgspec.convert(value, Annotated[int, msgspec.Meta(ge=0, le=_MOST_KEPT)]))


def _engine(value: object, _: str) -> object:
    return msgspec.convert(value, Literal.__getitem__(tuple(ENGINES)))  # now: an engine may register itself later


def _quoted(names: Iterable[str]) -> str:
    *others, last = (f'"{name}"' for name in names)
    return f"{', '.join(others)} or {last}"


class _Key(NamedTuple):
    """Which field of Settings a key sets, an example, and what reads its value: it raises what msgspec raises."""

    name: str
    example: str
    read: Callable[[object, str], Any]


_TEXT: Final = _of(Annotated[str, msgspec.Meta(min_length=1)])
_KEYS: Final = {
    "context": _Key("context_mib", '"450MiB"', parse_mib),
    "headroom": _Key("headroom", "0.02", _headroom),
    "state_dir": _Key("state_dir", '"DIR"', _TEXT),
    "overrun": _Key("overrun", '"stop" or "warn"', _of(Literal["warn", "stop"])),
    "overrun_grace": _Key("overrun_grace_s", "10", _of(Annotated[float, msgspec.Meta(ge=0, le=86_400)])),
    "most_jobs": _Key("most_jobs", "64", _of(Annotated[int, msgspec.Meta(ge=1, le=10_000)])),
    "strict": _Key("strict", "false", _of(bool)),
    "most_delay": _Key("most_delay_s", '"2d"', _seconds),
    "log_cap": _Key("log_cap_mib", '"256MiB"', _cap),
    "keep_jobs": _Key("keep_jobs", '"90d" or 10000', _kept_jobs),
    "keep_logs": _Key("keep_logs_s", '"30d"', _seconds),
    "idle_after": _Key("idle_after_s", '"30m"', _seconds),
    "idle_below": _Key("idle_below", "1", _of(Annotated[float, msgspec.Meta(gt=0, le=100)])),
    "engine": _Key("engine", _quoted(ENGINES), _engine),
    "default_machine": _Key("default_machine", '"4x16GiB"', _TEXT),
}
