"""Runs a command of a notification: a bounded time, none of its processes left behind, and its last line kept."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from gpusched.linux.processes import die_with, kill_descendants
from gpusched.model.event import Event
from gpusched.notifications.destination import PREFIX
from gpusched.notifications.event_text import title

__all__ = ["run_command", "send_mail", "variables"]

_LAST_S: Final = 2.0
_POLL_S: Final = 0.02
_KEPT: Final = 2000
_LONGEST_LINE: Final = 200
_SENDMAIL: Final = "/usr/sbin:/usr/lib"


def variables(event: Event) -> dict[str, str]:
    """Return the fields of an event as variables; what is unknown is empty."""
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "event"}
    texts = {f"{PREFIX}_{name.upper()}": "" if value is None else str(value) for name, value in fields.items()}
    texts |= {PREFIX: event.event, f"{PREFIX}_TITLE": title(event)}
    return {name: value.replace("\0", " ") for name, value in texts.items()}


def run_command(
    argv: Sequence[str], event: Event, environ: Mapping[str, str], cwd: str, limit_s: float, text: bytes = b""
) -> str | None:
    """Run a command to its end, with `text` on its standard input; return why it failed, None if it succeeded.

    This process must be a subreaper with no other child: whatever the command has started is killed.
    """
    base = {name: value for name, value in environ.items() if not name.startswith(PREFIX)}
    inner, outer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(inner, False)
    with os.fdopen(inner, "rb") as output, os.fdopen(outer, "wb") as end, _holding(text) as given:
        try:
            process = subprocess.Popen(
                argv,
                env=base | variables(event),
                cwd=cwd,
                stdin=given,
                stdout=end,
                stderr=end,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 (there is one thread)
            )
        except OSError as error:
            return f"{error.filename or argv[0]}: {error.strerror}"
        last = b""
        deadline = time.monotonic() + limit_s
        while process.poll() is None and time.monotonic() < deadline:
            last = _read(output.fileno(), last)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
        code = process.returncode
        kill_descendants(_LAST_S)
        return _problem(code, _read(output.fileno(), last), limit_s)


def send_mail(to: str, event: Event, text: str, environ: Mapping[str, str], limit_s: float) -> str | None:
    """Give a mail to this host's sendmail, which knows the sender; return why it did not take it."""
    from email.message import EmailMessage

    mail = EmailMessage()
    mail["To"], mail["Subject"] = to, title(event)
    mail["X-Gpusched-Event-Id"] = event.id
    mail.set_content(text + "\n")
    program = shutil.which("sendmail", path=f"{environ.get('PATH', os.defpath)}:{_SENDMAIL}")
    if program is None:
        return "there is no sendmail on this host"
    return run_command([program, "-t", "-i"], event, environ, str(Path.home()), limit_s, mail.as_bytes())


def _holding(text: bytes) -> BinaryIO:
    """Return a file without a name, for what no pipe may have room for."""
    file = os.fdopen(os.memfd_create("notification", os.MFD_CLOEXEC), "w+b")
    file.write(text)
    file.seek(0)
    return file


def _read(descriptor: int, last: bytes) -> bytes:
    """Return the end of `last` and what has come since."""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(descriptor, 65536):
            last = (last + piece)[-_KEPT:]
    return last


def _problem(code: int | None, output: bytes, limit_s: float) -> str | None:
    if code == 0:
        return None
    if code is None:
        what = f"the command did not end within {limit_s:g} s"
    elif code < 0:
        what = f"the command was killed by signal {-code}"
    else:
        what = f"the command ended with code {code}"
    lines = output.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    printed = "".join(one if one.isprintable() else " " for one in last)[:_LONGEST_LINE]
    return f"{what}: {printed}" if printed else what
