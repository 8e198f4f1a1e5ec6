"""Notifications: whether they reach a person. What could not be delivered is in gpusched.api.daemon.state()."""

import os

import msgspec

from gpusched.api.validation import require_type
from gpusched.errors import UsageError
from gpusched.notifications.destination import names, of_job, resolve, title_of
from gpusched.notifications.trial import example, try_out
from gpusched.notify_settings import check_target
from gpusched.probe.host import host_name
from gpusched.settings import Settings, load_settings

__all__ = ["Delivery", "send_test"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a notification: its `destination`, and why it was not delivered, None if it was."""

    destination: str
    problem: str | None = None


def send_test(target: str | None = None, *, settings: Settings | None = None) -> tuple[Delivery, ...]:
    """Send a test event to where the configuration has it sent, or to `target`, a command or URL as of `notify=`.

    It takes up to 10 s for each. Raises UsageError where nothing is configured and nothing is given.
    """
    require_type(target, str | None, "target")
    notify = (settings or load_settings(os.environ)).notify
    if target is not None:
        found: tuple[str, ...] = (of_job(check_target(target, "target")),)
    elif not (found := names(notify, None)):
        raise UsageError(
            "the configuration has no [notify]", "write it (docs/notifications.md), or name a command or URL"
        )
    deliveries = []
    for name in found:
        destination = resolve(name, notify)
        problem = "it is not configured" if destination is None else try_out(destination, example(host_name()))
        deliveries.append(Delivery(destination=title_of(name), problem=problem))
    return tuple(deliveries)
