"""Where settings come from, which of two wins, and that a wrong file is told by name."""

import os
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import GpuschedError, HostFault, UsageError
from gpusched.settings import SettingsWarning, load_settings, places, queue_settings


def written(tmp_path: Path, text: str, **environ: str) -> dict[str, str]:
    (tmp_path / "config.toml").write_text(text)
    return {"HOME": str(tmp_path), "GPUSCHED_CONFIG": str(tmp_path / "config.toml"), **environ}


def test_without_a_file_everything_has_a_default_below_home(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path)})
    assert settings.state_dir == tmp_path / ".local" / "state" / "gpusched"
    assert (settings.context_mib, settings.headroom) == (450, 200)
    assert settings.runtime_dir in {Path(f"/run/user/{os.getuid()}/gpusched"), Path(f"/tmp/gpusched-{os.getuid()}")}


def test_the_directories_of_the_desktop_standard_are_used_where_they_are_set(tmp_path: Path) -> None:
    (tmp_path / "conf" / "gpusched").mkdir(parents=True)
    (tmp_path / "conf" / "gpusched" / "config.toml").write_text('context = "300MiB"')
    given = {"XDG_CONFIG_HOME": "conf", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    settings = load_settings({name: str(tmp_path / path) for name, path in given.items()} | {"HOME": "/nowhere"})
    assert settings.state_dir == tmp_path / "state" / "gpusched"
    assert settings.runtime_dir == tmp_path / "run" / "gpusched"
    assert settings.context_mib == 300


def test_a_relative_directory_in_a_variable_of_the_standard_is_ignored_as_it_says(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    relative = {"XDG_CONFIG_HOME": "conf", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    assert load_settings(home | relative) == load_settings(home)


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    with pytest.raises(HostFault, match="no home directory") as caught:
        load_settings({})
    assert "HOME" in caught.value.hint


def test_a_file_sets_all_that_it_may(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, 'context = "1GiB"\nheadroom = 0.05\nstate_dir = "/var/jobs"'))
    assert (settings.context_mib, settings.headroom, settings.state_dir) == (1024, 500, Path("/var/jobs"))


@pytest.mark.parametrize("zero", ["0", "0.0"])
def test_headroom_may_be_nothing(tmp_path: Path, zero: str) -> None:
    assert load_settings(written(tmp_path, f"headroom = {zero}")).headroom == 0


def test_how_the_queue_may_delay_a_head_is_set(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, 'strict = true\nmost_delay = "90m"'))
    assert (settings.strict, settings.most_delay_s) == (True, 5400)


@pytest.mark.parametrize("text", ["strict = 1", 'strict = "yes"', "most_delay = 5", 'most_delay = "soon"'])
def test_a_wrong_bound_of_the_queue_is_told_with_its_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=text.partition(" ")[0]):
        load_settings(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "cap", "jobs", "logs"),
    [
        ("", 256, (None, None), None),
        ('log_cap = "1GiB"', 1024, (None, None), None),
        ('log_cap = "none"', 0, (None, None), None),
        ("log_cap = 0", 0, (None, None), None),
        ('keep_jobs = "90d"\nkeep_logs = "1d"', 256, (90 * 86400, None), 86400),
        ("keep_jobs = 10000", 256, (None, 10000), None),
        ("keep_jobs = 0", 256, (None, 0), None),
    ],
)
def test_what_is_kept_is_all_unless_the_file_limits_it(
    tmp_path: Path, text: str, cap: int, jobs: tuple[float | None, int | None], logs: float | None
) -> None:
    settings = load_settings(written(tmp_path, text))
    assert (settings.log_cap_mib, settings.keep_jobs, settings.keep_logs_s) == (cap, jobs, logs)


@pytest.mark.parametrize(
    "text",
    [
        "log_cap = 256",
        'log_cap = "4MiB"',
        "log_cap = false",
        "keep_jobs = true",
        "keep_jobs = -1",
        "keep_jobs = 2.5",
        'keep_jobs = "long"',
        "keep_logs = 30",
    ],
)
def test_a_wrong_limit_of_what_is_kept_is_refused_with_its_key(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=text.partition(" ")[0]):
        load_settings(written(tmp_path, text))


def test_a_relative_state_directory_is_seen_from_the_file_not_from_where_the_command_runs(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, 'state_dir = "jobs"')).state_dir == tmp_path / "jobs"


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    environ = written(tmp_path, 'state_dir = "/from/file"', GPUSCHED_STATE_DIR="/from/environment")
    assert load_settings(environ | {"GPUSCHED_RUNTIME_DIR": "/short"}).state_dir == Path("/from/environment")
    assert load_settings(environ | {"GPUSCHED_RUNTIME_DIR": "/short"}).runtime_dir == Path("/short")
    assert load_settings(environ | {"GPUSCHED_STATE_DIR": ""}).state_dir == Path("/from/file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = true", "colour: there is no such key"),
        ('headroom = "2%"', "headroom: '2%' is not a fraction"),
        ("headroom = false", "headroom: False is not a fraction"),
        ("headroom = nan", "headroom: nan is not a fraction"),
        ("context = 450", "context: 450 is not an amount of memory"),
        ('context = "0MiB"', "context: '0MiB' is less than 1 MiB"),
        ("state_dir = 7", "state_dir: that value is not understood"),
        ('state_dir = ""', "state_dir: that value is not understood"),
        (
            'state_dir = "~nobody-of-that-name/jobs"',
            "state_dir: '~nobody-of-that-name/jobs' begins with no user's home",
        ),
        ("context = ", "Invalid value"),
        ("[context]\nmib = 3", "context: {'mib': 3} is not an amount"),
    ],
)
def test_a_wrong_file_is_told_with_its_name_the_key_and_what_to_write(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(written(tmp_path, text))
    assert str(tmp_path / "config.toml") in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint


def test_a_file_that_is_no_text_or_cannot_be_read_is_told(tmp_path: Path) -> None:
    environ = written(tmp_path, "")
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"config\.toml"):
        load_settings(environ)
    with pytest.raises(HostFault, match=str(tmp_path)):
        load_settings(environ | {"GPUSCHED_CONFIG": str(tmp_path)})


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(GpuschedError, match="there is no such file") as caught:
        load_settings({"HOME": str(tmp_path), "GPUSCHED_CONFIG": str(tmp_path / "gone.toml")})
    assert "GPUSCHED_CONFIG" in caught.value.hint


def test_a_directory_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(UsageError, match="no path in UTF-8"):
        load_settings({"HOME": "/home/ann", "GPUSCHED_STATE_DIR": "/tmp/\udcff"})


def test_how_long_the_driver_is_waited_for_is_2_s_or_what_a_variable_says(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert load_settings(home).driver_patience_s == 2
    assert load_settings(home | {"GPUSCHED_DRIVER_PATIENCE": "12.5"}).driver_patience_s == 12.5


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf", "601", "10s"])
def test_no_time_to_wait_for_the_driver_is_refused_with_its_variable(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="GPUSCHED_DRIVER_PATIENCE"):
        load_settings({"HOME": str(tmp_path), "GPUSCHED_DRIVER_PATIENCE": text})


def test_paths_in_variables_are_seen_from_here_once_and_handed_on_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "odd.toml").write_text('context = "300MiB"')
    given = {"GPUSCHED_STATE_DIR": "x/y", "GPUSCHED_LEASE_DIR": "~/leases", "GPUSCHED_CONFIG": "odd.toml"}
    settings = load_settings(given | {"GPUSCHED_RUNTIME_DIR": "run"})
    handed = places(given) | settings.environment()
    monkeypatch.chdir("/")

    assert settings.state_dir == tmp_path / "x" / "y"
    assert settings.lease_dir == tmp_path / "home" / "leases"
    assert load_settings(handed) == settings
    assert places(handed) == handed


def test_a_state_directory_behind_a_link_is_one_place_under_both_names(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    by_variable = load_settings({"HOME": str(tmp_path), "GPUSCHED_STATE_DIR": str(tmp_path / "link" / "state")})
    by_file = load_settings(written(tmp_path, 'state_dir = "link/state"'))
    assert by_variable.state_dir == by_file.state_dir == tmp_path / "disk" / "state"


def test_a_key_that_is_nearly_one_is_answered_with_the_one_that_is_meant(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(written(tmp_path, 'kep_jobs = "90d"'))
    assert caught.value.hint == "did you mean keep_jobs?"
    with pytest.raises(UsageError) as caught:
        load_settings(written(tmp_path, "most_jobs = 0"))
    assert caught.value.hint == "such as most_jobs = 64"


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("most_jobs = 0", ">= 1"),
        ("most_jobs = 10001", "<= 10000"),
        ("idle_below = 0", "> 0.0"),
        ("idle_below = 101", "<= 100.0"),
        ("idle_below = nan", "not understood"),
        ("overrun_grace = -1", ">= 0.0"),
        ("overrun_grace = true", "got `bool`"),
        ('overrun = "kill"', "'kill'"),
        ('engine = "lsf"', "'lsf'"),
        ("keep_jobs = -1", ">= 0"),
        ("keep_jobs = true", "got `bool`"),
    ],
)
def test_a_value_that_a_key_cannot_have_is_answered_with_its_bound(tmp_path: Path, text: str, bound: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(written(tmp_path, text))
    assert bound in caught.value.message
    assert caught.value.hint.startswith(f"such as {text.partition(' ')[0]} = ")


@pytest.mark.parametrize(
    "text", ['kep_jobs = "90d"', "most_jobs = 0", "[notify]\nhook = 1", "keep_jobs = 90d", 'context = "none"']
)
def test_what_is_wrong_is_left_out_with_a_warning_where_jobs_are_shown_or_ended(tmp_path: Path, text: str) -> None:
    with pytest.warns(SettingsWarning, match="it is left out"):
        found = queue_settings(written(tmp_path, f"overrun_grace = 7\n{text}"))
    assert found.overrun_grace_s == (10 if "90d" in text and "kep_" not in text else 7), "all else of a readable file"
    assert found == msgspec.structs.replace(
        load_settings(written(tmp_path, "")), overrun_grace_s=found.overrun_grace_s
    ), "as if it were not there"


@pytest.mark.parametrize("text", ["state_dir = 7", 'state_dir = "/jobs"\nkeep_jobs = 90d'])
def test_where_another_queue_could_be_meant_nothing_is_left_out(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        queue_settings(written(tmp_path, text))
