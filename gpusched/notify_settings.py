r"""The table `[notify]` of the configuration: where notifications go, of which events, and how a URL's body is written.

[notify]
command = "notify-send gpusched \"$GPUSCHED_EVENT_TITLE\""  # run by sh, with the fields in variables
url = "https://example.org/hook"  # gets a POST: JSON, or what `template` makes of it
template = "ntfy"                 # or "slack"; "sendmail" with `to`, in the place of `url`
to = "alice@example.org"          # of sendmail
secret_file = "notify.key"        # signs each POST; seen from the configuration's directory
events = ["failed", "lost"]       # by default all but "started"
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from gpusched.errors import UsageError

__all__ = ["DEFAULT_EVENTS", "EVENTS", "NotifySettings", "check_target", "is_url", "parse_notify"]

EVENTS: Final = (
    "started",
    "succeeded",
    "failed",
    "time-limit",
    "out-of-memory",
    "cancelled",
    "lost",
    "idle",
    "device-drained",
)
DEFAULT_EVENTS: Final = EVENTS[1:]
_FAILURES: Final = ("time-limit", "out-of-memory")
_TEMPLATES: Final = ("ntfy", "slack", "sendmail")
_LONGEST: Final = 4096
_KEYS: Final = (
    'known keys: command = "COMMAND", url = "https://...", template = "ntfy", "slack" or "sendmail", '
    'to = "ADDRESS", secret_file = "FILE", events = ["failed", "lost"]'
)
_URL_HINT: Final = "such as https://ntfy.sh/TOPIC; what is no URL is a command"


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where notifications go; None: nowhere. `template`: of a URL; None: JSON. `to`: who gets a mail.

    `secret_file` has the key by which each POST is signed.
    """

    command: str | None = None
    url: str | None = None
    to: str | None = None
    template: str | None = None
    secret_file: str | None = None
    events: tuple[str, ...] = DEFAULT_EVENTS

    def wants(self, event: str) -> bool:
        """Return whether there are notifications of an event; `failed` means every failure."""
        return event in self.events or (event in _FAILURES and "failed" in self.events)


def is_url(target: str) -> bool:
    """Return whether a destination is a URL; another one is a command."""
    return target.lower().startswith(("http://", "https://"))


def check_target(target: str, where: str) -> str:
    """Return a destination, a URL or a command. Raises UsageError, naming `where`, for one that cannot be."""
    if not target.strip() or "\0" in target or len(target) > _LONGEST:
        raise UsageError(f"{where}: it is empty, too long or has a zero byte", "give a command, or a URL")
    if target.startswith("-"):
        raise UsageError(f"{where}: {target!r} is an option, and no command", "give a command, or a URL")
    if is_url(target):
        return _checked_url(target, where)
    scheme, found, _ = target.partition("://")
    if found and scheme.isalnum():
        raise UsageError(f"{where}: {scheme} is not understood, only http and https are", _URL_HINT)
    return target


def parse_notify(value: object, where: str, base: Path) -> NotifySettings:
    """Read the table; `base` is the configuration's directory. Raises UsageError, naming `where`."""
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {value!r} is no table", _KEYS)
    found: dict[str, Any] = {}
    for key, one in value.items():
        if key not in _PARSED:
            raise UsageError(f"{where}.{key}: not understood", _KEYS)
        found[key] = _PARSED[key](one, f"{where}.{key}")
    _require_whole(found, where)
    if "secret_file" in found:
        found["secret_file"] = _from(base, found["secret_file"], f"{where}.secret_file")
    if found.get("template") == "sendmail":
        del found["template"]
    return NotifySettings(**found)


def _from(base: Path, file: str, where: str) -> str:
    try:
        return str((base / Path(file).expanduser()).absolute())
    except RuntimeError:  # ~name, and there is no such user
        raise UsageError(f"{where}: {file!r} begins with no user's home", "write the whole path") from None


def _require_whole(found: dict[str, Any], where: str) -> None:
    """Raise UsageError for keys that need another one, or exclude it."""
    mail = found.get("template") == "sendmail"
    if mail and "to" not in found:
        raise UsageError(f'{where}: template = "sendmail" and no address', 'add to = "alice@example.org"')
    if "to" in found and not mail:
        raise UsageError(f"{where}: to is for mail only", 'add template = "sendmail", or leave to out')
    if mail and "url" in found:
        raise UsageError(f'{where}: template = "sendmail" takes no url', "leave url out, or take another template")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value or len(value) > _LONGEST:
        raise UsageError(f"{where}: {value!r} is no text", _KEYS)
    return value


def _command(value: object, where: str) -> str:
    text = _text(value, where)
    if is_url(text):
        raise UsageError(f"{where}: this is a URL", "write it as url = ...")
    return text


def _url(value: object, where: str) -> str:
    text = _text(value, where)
    if not is_url(text):
        raise UsageError(f"{where}: no URL of http or https", _URL_HINT)
    return _checked_url(text, where)


def _checked_url(text: str, where: str) -> str:
    """Return a URL. Raises UsageError, which does not quote it: a part of it may be a secret."""
    from urllib.parse import urlsplit

    if not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"{where}: the URL has a space or another character that none has", "write it as %20 and so on"
        )
    try:
        parts = urlsplit(text)
        good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"{where}: the URL names no host, or no port", _URL_HINT)
    if parts.username is not None:
        raise UsageError(f"{where}: a URL with a user's name is not understood", "give another one, or a command")
    return text


def _to(value: object, where: str) -> str:
    text = _text(value, where)
    if not text.isprintable() or text.startswith("-"):
        raise UsageError(f"{where}: {text!r} is no address", 'such as to = "alice@example.org"')
    return text


def _template(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in _TEMPLATES:
        raise UsageError(f"{where}: there is no template {value!r}", 'take "ntfy", "slack" or "sendmail"')
    return value


def _events(value: object, where: str) -> tuple[str, ...]:
    known = f"known events: {', '.join(EVENTS)}"
    if not isinstance(value, list):
        raise UsageError(f"{where}: {value!r} is no list", known)
    for one in value:
        if one not in EVENTS:
            raise UsageError(f"{where}: there is no event {one!r}", known)
    return tuple(value)


_PARSED: Final[dict[str, Callable[[object, str], object]]] = {
    "command": _command,
    "url": _url,
    "template": _template,
    "to": _to,
    "secret_file": _text,
    "events": _events,
}
