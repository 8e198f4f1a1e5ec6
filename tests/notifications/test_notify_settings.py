"""The table [notify]: what it may have, and that what is wrong is named with its key."""

from pathlib import Path

import pytest

from gpusched.errors import UsageError
from gpusched.notify_settings import DEFAULT_EVENTS, EVENTS, NotifySettings
from gpusched.settings import load_settings


def read(tmp_path: Path, text: str) -> NotifySettings:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load_settings({"HOME": str(tmp_path), "GPUSCHED_CONFIG": str(path)}).notify


def test_without_the_table_nothing_goes_anywhere(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "[notify]") == NotifySettings()


def test_all_keys_are_read_and_a_file_is_seen_from_the_configuration(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '[notify]\ncommand = "true"\nurl = "https://ntfy.sh/topic"\ntemplate = "ntfy"\nsecret_file = "key"\n'
        'events = ["lost", "failed"]',
    )

    assert found == NotifySettings(
        command="true",
        url="https://ntfy.sh/topic",
        template="ntfy",
        secret_file=str(tmp_path / "key"),
        events=("lost", "failed"),
    )


def test_sendmail_needs_an_address_and_no_url(tmp_path: Path) -> None:
    assert read(tmp_path, '[notify]\ntemplate = "sendmail"\nto = "a@b.org"') == NotifySettings(to="a@b.org")


def test_by_default_all_events_but_starts_are_notified() -> None:
    assert {"started", *DEFAULT_EVENTS} == set(EVENTS)
    assert "started" not in DEFAULT_EVENTS


@pytest.mark.parametrize("event", ["failed", "time-limit", "out-of-memory"])
def test_failed_means_every_failure_and_one_of_them_means_itself(event: str) -> None:
    assert NotifySettings(events=("failed",)).wants(event)
    assert NotifySettings(events=("time-limit",)).wants(event) is (event == "time-limit")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("notify = 5", "notify: 5 is no table"),
        ('[notify]\nhook = "x"', "notify.hook: not understood"),
        ("[notify]\ncommand = 5", "notify.command: 5 is no text"),
        ('[notify]\ncommand = " "', "notify.command: ' ' is no text"),
        ('[notify]\ncommand = "https://x.org"', "notify.command: this is a URL"),
        ('[notify]\nurl = "ftp://x.org"', "notify.url: no URL of http or https"),
        ('[notify]\nurl = "https:///path"', "notify.url: the URL names no host"),
        ('[notify]\nurl = "https://x.org:port/"', "notify.url: the URL names no host, or no port"),
        ('[notify]\nurl = "https://x.org/a b"', "notify.url: the URL has a space"),
        ('[notify]\nurl = "https://me:pw@x.org/"', "notify.url: a URL with a user's name"),
        ('[notify]\ntemplate = "teams"', "notify.template: there is no template 'teams'"),
        ('[notify]\ntemplate = "sendmail"', 'template = "sendmail" and no address'),
        ('[notify]\nto = "a@b.org"', "to is for mail only"),
        ('[notify]\ntemplate = "sendmail"\nto = "a@b.org"\nurl = "https://x.org"', "takes no url"),
        (
            '[notify]\ntemplate = "sendmail"\nto = "a@b.org\\nBcc: c@d.org"',
            "notify.to: .*Bcc.* is no address",
        ),
        ('[notify]\nevents = "failed"', "notify.events: 'failed' is no list"),
        ('[notify]\nevents = ["failed", "done"]', "notify.events: there is no event 'done'"),
        ("[notify]\nevents = [[1]]", "notify.events: there is no event \\[1\\]"),
        ('[notify]\nsecret_file = "~no-such-user-here/key"', "notify.secret_file: .* begins with no user's home"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        read(tmp_path, text)
    assert caught.value.hint


def test_a_wrong_url_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, '[notify]\nurl = "https://me:TOPSECRET@x.org/"')
    assert "TOPSECRET" not in str(caught.value)
