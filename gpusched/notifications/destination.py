"""Where a notification goes, by a short name that the configuration gives a meaning: a change of it holds at once.

The names `command`, `url` and `mail` mean what the configuration has; `job:TEXT` is the command or URL of one job.
"""

from typing import Final, Literal

import msgspec

from gpusched.notify_settings import NotifySettings, is_url

__all__ = ["PREFIX", "Answer", "Destination", "Parcel", "Request", "names", "of_job", "resolve", "title_of"]

Kind = Literal["command", "json", "ntfy", "slack", "mail"]

PREFIX: Final = "GPUSCHED_EVENT"
"""How the variables of a command begin: none is one that a replica has, or that a gpusched in the command reads."""

_OF_JOB: Final = "job:"


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A command, the URL of a POST (`json`, `ntfy`, `slack`: what its body is), or an address for mail.

    `secret_file`: the key that signs a POST. `in_directory`: a command runs in the job's directory.
    """

    kind: Kind
    target: str
    secret_file: str | None = None
    in_directory: bool = False


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way: its id, and the JSON of it that is sent each time."""

    id: str
    payload: bytes


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that sends gets on its standard input. `limit_s`: how long each delivery may take.

    `files`: how many it may open, softly and hard (RLIMIT_NOFILE); None: as many as it has. `environ`: variables beside
    its own.
    """

    destination: Destination
    parcels: tuple[Parcel, ...]
    limit_s: float
    files: tuple[int, int] | None = None
    environ: dict[str, str] = {}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one event, a line of JSON on standard output. `problem`: why it was not delivered."""

    id: str
    problem: str | None = None


def names(settings: NotifySettings, own: str | None) -> tuple[str, ...]:
    """Return where an event goes: what the configuration names, and what its job does (`own`)."""
    configured = (("command", settings.command), ("url", settings.url), ("mail", settings.to))
    return (*(name for name, value in configured if value is not None), *((of_job(own),) if own else ()))


def of_job(target: str) -> str:
    """Return the name of a job's own command or URL."""
    return f"{_OF_JOB}{target}"


def title_of(name: str) -> str:
    """Return a destination for people, without what may be a secret in it."""
    if not name.startswith(_OF_JOB):
        return name
    return "its own URL" if is_url(name.removeprefix(_OF_JOB)) else "its own command"


def resolve(name: str, settings: NotifySettings) -> Destination | None:
    """Return the destination of that name, None where the configuration has it no longer."""
    template: Kind = "ntfy" if settings.template == "ntfy" else "slack" if settings.template == "slack" else "json"
    if name.startswith(_OF_JOB):
        target = name.removeprefix(_OF_JOB)
        if is_url(target):
            return Destination(kind=template, target=target, secret_file=settings.secret_file)
        return Destination(kind="command", target=target, in_directory=True)
    if name == "command" and settings.command is not None:
        return Destination(kind="command", target=settings.command)
    if name == "url" and settings.url is not None:
        return Destination(kind=template, target=settings.url, secret_file=settings.secret_file)
    if name == "mail" and settings.to is not None:
        return Destination(kind="mail", target=settings.to)
    return None
