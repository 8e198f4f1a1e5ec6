"""What a program calls inside a replica: which replica it is, its options, and that it has begun its work."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gpusched.errors import NotLaunched, UsageError
from gpusched.units import FRACTION_ONE

__all__ = [
    "LEARNER_LOST",
    "LEARNER_OVER",
    "LEARNER_REFUSES",
    "READY_DIRECTORY",
    "ReplicaIdentity",
    "current_replica",
    "memory_limit",
    "ready_name",
    "report_learner_gone",
    "report_ready",
    "settings",
]

LEARNER_OVER: Final = "learner-over"

LEARNER_LOST: Final = "learner-lost"

LEARNER_REFUSES: Final = "learner-refuses"
"""Empty files in the run directory of a job whose learner is elsewhere, see report_learner_gone()."""

READY_DIRECTORY: Final = "ready"
"""In the run directory; a replica that is ready leaves an empty file there, named by `ready_name`."""

_REPORTED: Final[set[Path]] = set()
"""The files that report this process as ready."""


class ReplicaIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a launched process knows of itself. `limit_mib` is None without a device; memory in MiB.

    `listen`: where the learner of a job takes actors of other hosts, None if it takes none. `keys`: this
    process's key file there. `joined`: what the learner calls the host of an actor that joined, "" of all others.
    `patience_s`: how long an actor elsewhere waits for a learner that sends nothing, None for the usual time;
    for its first message one with an `incarnation` waits 15 minutes at least.
    `incarnation`: how often a cluster has started the actors of this node, 0 outside one; of the processes of one name
    the learner takes messages only of those with the highest.
    """

    job: str
    role: str
    rank: int
    role_count: int
    name: str
    attempt: int
    run_dir: Path
    endpoint: str
    keys: Path | None = None
    listen: str | None = None
    joined: str = ""
    patience_s: int | None = None
    incarnation: int = 0
    limit_mib: int | None = None
    fraction: int | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the learner is on another host: this one joined it, or is another node of its launch."""
        return not self.endpoint.startswith("ipc:")


def ready_name(replica: str, attempt: int) -> str:
    """Return the name of the file that shows that a replica was ready in that attempt: `actor.7.0`."""
    return f"{replica}.{attempt}"


def report_ready(environ: Mapping[str, str] | None = None) -> None:
    """Report that this replica has begun its work; `gpusched launch` and `status` show it.

    A program with gpusched.channel need not: a Learner is ready when it has published weights, an Actor when its
    learner has answered and the first batch has left. Only the first call counts. Outside a launch, and where the run
    directory cannot be written, nothing happens.
    """
    env = os.environ if environ is None else environ
    with suppress(NotLaunched, OSError, ValueError):  # ValueError: a path with a zero byte
        me = current_replica(env)
        file = me.run_dir / READY_DIRECTORY / ready_name(me.name, me.attempt)
        if file not in _REPORTED:  # a file may lie there of an earlier attempt of the whole job
            file.touch(mode=0o600)
            _REPORTED.add(file)


def report_learner_gone(*, lost: bool, refuses: bool = False, environ: Mapping[str, str] | None = None) -> None:
    """Report that the learner elsewhere is over, or `lost` to this host's actors; gpusched.channel does.

    It is lost if it sends nothing for as long as they have patience, and if newer actors have their places. It
    `refuses` them for good if their key was revoked. On the learner's own host, outside a launch, and where the run
    directory cannot be written, nothing happens.
    """
    with suppress(NotLaunched, OSError, ValueError):
        me = current_replica(environ)
        if me.elsewhere:
            name = LEARNER_REFUSES if refuses else LEARNER_LOST if lost else LEARNER_OVER
            (me.run_dir / name).touch(mode=0o600)


def current_replica(environ: Mapping[str, str] | None = None) -> ReplicaIdentity:
    """Read who this process is. Raises NotLaunched outside a launch."""
    env = os.environ if environ is None else environ
    try:
        return ReplicaIdentity(
            job=env["GPUSCHED_JOB"],
            role=env["GPUSCHED_ROLE"],
            rank=_whole(env, "GPUSCHED_RANK"),
            role_count=_whole(env, "GPUSCHED_ROLE_COUNT"),
            name=env["GPUSCHED_REPLICA"],
            attempt=_whole(env, "GPUSCHED_ATTEMPT") if "GPUSCHED_ATTEMPT" in env else 0,
            run_dir=Path(env["GPUSCHED_RUN_DIR"]),
            endpoint=env["GPUSCHED_ENDPOINT"],
            keys=Path(env["GPUSCHED_KEYS"]) if "GPUSCHED_KEYS" in env else None,
            listen=env.get("GPUSCHED_LISTEN"),
            joined=env.get("GPUSCHED_JOINED", ""),
            patience_s=_whole(env, "GPUSCHED_PATIENCE_S") if "GPUSCHED_PATIENCE_S" in env else None,
            incarnation=_whole(env, "GPUSCHED_INCARNATION") if "GPUSCHED_INCARNATION" in env else 0,
            limit_mib=memory_limit(env)[0],
            fraction=memory_limit(env)[1],
        )
    except (KeyError, ValueError) as error:
        raise NotLaunched(
            f"this process was not launched by gpusched: {error.args[0]} is missing or wrong in its environment",
            "start it with `gpusched launch WORKLOAD`",
        ) from None


def memory_limit(environ: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the limit in MiB and the fraction in 1/10 000 that `environ` holds, or (None, None) if it holds none.

    Raises ValueError, with the variable and its value, for one that is not a number.
    """
    fraction = environ.get("GPUSCHED_MEMORY_FRACTION")
    if fraction is None or "GPUSCHED_MEMORY_LIMIT_MIB" not in environ:
        return None, None
    try:
        portion = round(float(fraction) * FRACTION_ONE)
    except (ValueError, OverflowError):  # not a number, NaN, infinite
        raise ValueError(f"GPUSCHED_MEMORY_FRACTION={fraction}") from None
    return _whole(environ, "GPUSCHED_MEMORY_LIMIT_MIB"), portion


def _whole(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError:
        raise ValueError(f"{name}={environ[name]}") from None


SettingsClass = TypeVar("SettingsClass")


def settings(of: type[SettingsClass], environ: Mapping[str, str] | None = None) -> SettingsClass:
    """Read the workload's options as `of`, a msgspec.Struct; its defaults outside a launch. Raises UsageError."""
    env = os.environ if environ is None else environ
    try:
        return msgspec.json.decode(env.get("GPUSCHED_SETTINGS") or b"{}", type=of)
    except msgspec.MsgspecError as error:
        raise UsageError(f"GPUSCHED_SETTINGS: {error}", f"see the fields of {of.__module__}.{of.__name__}") from None
