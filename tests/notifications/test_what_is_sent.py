"""What a template makes of an event, as a server or sendmail gets it."""

import os
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.header import decode_header, make_header
from pathlib import Path

import msgspec
import pytest

from gpusched.model.event import Event
from gpusched.notifications.destination import Destination, resolve
from gpusched.notifications.trial import try_out
from gpusched.notify_settings import NotifySettings
from tests.daemon.webhook import Webhook

EVENT = Event(
    id="1f", event="out-of-memory", time=0.0, host="lab1", job="run-7", name="größer\nals", message="bad\nluck <&>"
)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    one = Webhook()
    yield one
    one.close()


def sent(settings: NotifySettings, name: str = "url", event: Event = EVENT) -> str | None:
    destination = resolve(name, settings)
    assert destination is not None
    return try_out(destination, event)


def test_ntfy_gets_a_title_and_lines(hook: Webhook) -> None:
    assert sent(NotifySettings(url=hook.url, template="ntfy")) is None

    headers, body = hook.posted[0]
    assert str(make_header(decode_header(headers["Title"]))) == "größer als (run-7) has failed: out of memory"
    assert body.decode().splitlines()[0] == "bad luck <&>"
    assert body.decode().splitlines()[1].startswith("on lab1, ")


def test_slack_gets_one_text(hook: Webhook) -> None:
    assert sent(NotifySettings(url=hook.url, template="slack")) is None

    fields = hook.posted[0].fields
    assert list(fields) == ["text"]
    assert fields["text"].startswith("größer als (run-7) has failed: out of memory\nbad luck &lt;&amp;&gt;\n")


def test_a_jobs_own_url_is_written_as_the_template_has_it(hook: Webhook) -> None:
    assert sent(NotifySettings(template="slack"), f"job:{hook.url}") is None

    assert list(hook.posted[0].fields) == ["text"]


def test_sendmail_gets_a_whole_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/argv; cat >{tmp_path}/mail\n')
    sendmail.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert sent(NotifySettings(to="alice@example.org"), "mail") is None

    mail = message_from_bytes((tmp_path / "mail").read_bytes(), policy=policy.default)
    assert (mail["To"], mail["Subject"]) == ("alice@example.org", "größer als (run-7) has failed: out of memory")
    assert mail.get_content().startswith("bad luck <&>\n")
    assert (tmp_path / "argv").read_text() == "-t -i\n"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/TOPSECRET", "http://no-such-host.invalid/TOPSECRET"])
def test_a_server_that_cannot_be_reached_is_named_and_the_rest_of_the_url_is_not(url: str) -> None:
    problem = sent(NotifySettings(url=url))

    assert problem is not None
    assert problem.startswith(url.split("/")[2].partition(":")[0])
    assert "TOPSECRET" not in problem


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("true", None),
        ("exit 3", "the command ended with code 3"),
        ("echo one; echo two >&2; exit 3", "the command ended with code 3: two"),
        ("kill -9 $$", "the command was killed by signal 9"),
        ("no-such-program-at-all 2>/dev/null", "the command ended with code 127"),
        ("yes | head -c 10000000; exit 1", "the command ended with code 1: y"),
        ('test -z "$(cat)"', None),
    ],
)
def test_a_command_is_delivered_to_if_it_ends_with_0(command: str, problem: str | None) -> None:
    assert try_out(Destination(kind="command", target=command), EVENT) == problem


def test_what_is_unknown_is_an_empty_variable_and_none_of_another_event_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCHED_EVENT_DEVICE", "of the event that this process was started by")
    command = 'test -z "$GPUSCHED_EVENT_DEVICE" && test "${GPUSCHED_EVENT_EXIT_CODE+set}" = set'

    assert try_out(Destination(kind="command", target=command), EVENT) is None


def test_an_event_is_sent_without_what_is_a_jobs_alone() -> None:
    fields = msgspec.to_builtins(EVENT)

    assert not {"environ", "command", "argv"} & set(fields)
