"""Jobs that hold a device and do nothing with it, before a real daemon with the stand-in of NVML and real processes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusched.errors import NotFound, UsageError
from gpusched.model.status import JobState, JobStatus
from gpusched.settings import load_settings
from tests.daemon.daemons import Daemon
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import ROOT, StandIn, StandInHost

QUICK = Path(__file__).with_name("quick_monitor.py")
BUSY, QUIET = "gpus 1\nset 0 util 60\n", "gpus 1\n"
NOTE = 'printf "%s|" "$GPUSCHED_EVENT" "$GPUSCHED_EVENT_STATE" "$GPUSCHED_EVENT_MESSAGE"'


class Host:
    """A daemon that polls every 0.2 s, on a host whose device a test has work or do nothing."""

    def __init__(self, home: Path, device: StandInHost) -> None:
        self.device, self.out = device, home / "out"
        config = home / "config.toml"
        note = f"{NOTE} >> {self.out}; echo >> {self.out}"
        config.write_text(f'idle_after = "1s"\n[notify]\ncommand = \'{note}\'\nevents = ["idle", "failed"]\n')
        library = {name: device.env[name] for name in ("LD_LIBRARY_PATH", "NVML_STAND_IN")}
        self.daemon = Daemon(home, library | {"GPUSCHED_CONFIG": str(config)})
        self.command = self.daemon.command

    def start(self) -> None:
        self.daemon.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.daemon.state / "daemon.log").open("ab") as log:
            env = {**self.daemon.env, "PYTHONPATH": str(ROOT)}
            self.daemon.process = subprocess.Popen([sys.executable, str(QUICK), "0.2"], env=env, stderr=log)
        until(lambda: self.daemon.pid, "the daemon listens")

    def queue(self, *options: str, command: str = "sleep 600") -> str:
        queued = self.command.run("run", "-d", *options, "--json", "--", "sh", "-c", command)
        assert queued.returncode == 0, queued.stderr
        return str(json.loads(queued.stdout)["id"])

    def job(self, job: str) -> Any:
        (found,) = self.command.jobs(job).values()
        return found

    def works(self, job: str) -> None:
        """Have a device that works until the job runs."""
        self.device.change(BUSY)
        until(lambda: self.job(job)["state"] == "running", "it runs")

    def events(self) -> list[list[str]]:
        return [line.split("|")[:-1] for line in self.out.read_text().splitlines()] if self.out.exists() else []


@pytest.fixture
def busy_host(tmp_path: Path, stand_in: StandIn) -> Iterator[Host]:
    one = Host(tmp_path, stand_in.host(BUSY))
    one.start()
    yield one
    one.daemon.end()


def test_a_job_that_does_nothing_is_marked_everywhere_and_no_more_once_it_works(busy_host: Host) -> None:
    job = busy_host.queue()
    busy_host.works(job)
    assert busy_host.job(job)["idle_since"] is None
    busy_host.device.change(QUIET)
    until(lambda: busy_host.job(job)["idle_since"], "it is idle")
    assert "running, idle " in busy_host.command.run("ps").stdout
    assert "running, idle " in busy_host.command.run("status").stdout
    assert "its devices have done nothing for " in busy_host.command.run("ps", "--why").stdout
    (shown,) = json.loads(busy_host.command.run("status", "--json").stdout)["jobs"]
    assert shown["idle_since"] == busy_host.job(job)["idle_since"]
    until(busy_host.events, "the event")
    ((event, state, message),) = busy_host.events()
    assert (event, state) == ("idle", "running")
    assert message.startswith("its devices have done nothing for ")
    assert "--idle-end" not in message
    busy_host.device.change(BUSY)
    until(lambda: busy_host.job(job)["idle_since"] is None, "it works")
    assert "idle" not in busy_host.command.run("ps", "--why").stdout


def test_idle_end_warns_with_the_time_that_is_left_and_then_ends_the_job_within_its_grace(busy_host: Host) -> None:
    saves = "trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done"
    job = busy_host.queue("--idle-end", "4s", command=saves)
    busy_host.works(job)
    busy_host.device.change(QUIET)
    until(lambda: busy_host.job(job)["state"] == "failed", "it is ended")
    ended = busy_host.job(job)
    assert ended["message"] == "ended by --idle-end: its devices did nothing for 4 s"
    assert ended["idle_end_s"] == 4.0
    assert "failed: idle" in busy_host.command.run("ps", job).stdout
    log = busy_host.command.run("logs", job).stdout
    warned, saved = log.index("--idle-end ends it in "), log.index("saved")
    assert warned < log.index("ended by --idle-end") < saved
    until(lambda: len(busy_host.events()) == 2, "both events")
    warning, end = busy_host.events()
    assert warning[:2] == ["idle", "running"]
    assert "--idle-end ends it in " in warning[2]
    assert end == ["failed", "failed", ended["message"]]


def test_a_job_that_works_again_after_its_warning_goes_on(busy_host: Host) -> None:
    job = busy_host.queue("--idle-end", "100m")
    busy_host.works(job)
    busy_host.device.change(QUIET)
    until(lambda: "--idle-end ends it in " in busy_host.command.run("logs", job).stdout, "it is warned")
    busy_host.device.change(BUSY)
    until(lambda: busy_host.job(job)["idle_since"] is None, "it works")
    assert busy_host.job(job)["state"] == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_since_when_a_job_is_idle_outlives_the_daemon_and_is_one_event(busy_host: Host, number: signal.Signals) -> None:
    busy_host.device.change(QUIET)  # before it begins: the first reading is kept for the next daemon
    job = busy_host.queue("--idle-end", "100m")
    until(busy_host.events, "it is idle")
    since = busy_host.job(job)["idle_since"]
    busy_host.daemon.kill(number)
    busy_host.start()
    shown = [busy_host.job(job)["idle_since"] for _ in range(10)]
    assert shown == pytest.approx([since] * len(shown), abs=2.5)
    assert len(busy_host.events()) == 1
    assert busy_host.command.run("logs", job).stdout.count("--idle-end ends it in ") == 1


def test_a_command_in_the_foreground_ends_with_the_reason_on_its_stderr(busy_host: Host) -> None:
    run = busy_host.command.start("run", "--idle-end", "2s", "--", "sleep", "600")
    until(busy_host.command.jobs, "it is there")
    busy_host.device.change(QUIET)
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode != 0
    assert "ended by --idle-end: its devices did nothing for 2 s" in output


def test_a_job_on_which_the_driver_reports_nothing_is_never_idle(busy_host: Host) -> None:
    job = busy_host.queue("--idle-end", "2s")
    busy_host.works(job)
    busy_host.device.change("gpus 1\nset 0 util -1\n")
    other = busy_host.queue("--num-gpus", "0", command="sleep 3")
    until(lambda: busy_host.job(other)["state"] == "succeeded", "more than its time has passed")
    assert busy_host.job(job)["state"] == JobState.RUNNING
    assert busy_host.job(job)["idle_since"] is None


def test_a_foreign_process_that_holds_memory_and_does_nothing_is_named_with_user_and_age(busy_host: Host) -> None:
    with subprocess.Popen(["sleep", "600"]) as foreign:
        busy_host.device.change(f"gpus 1\nprocess 0 C {foreign.pid} 9318\nset 0 used 9318\n")
        named = f"idle: pid {foreign.pid} of "
        until(lambda: named in busy_host.command.run("status").stdout, "it is named")
        line = next(one for one in busy_host.command.run("status").stdout.splitlines() if one.startswith(named))
        assert " holds 9318 MiB of GPU 0 and has done nothing for " in line
        assert "; it began " in line
        ((process,),) = [
            one["processes"] for one in json.loads(busy_host.command.run("status", "--json").stdout)["devices"]
        ]
        assert process["began"] < process["idle_since"]
        foreign.kill()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--num-gpus", "0"), "--idle-end watches devices, and --num-gpus 0 is none"),
        (("--machine", "4x16GiB"), "--idle-end watches devices of this host, and not those of 4x16GiB"),
    ],
)
def test_a_job_without_watched_devices_takes_no_idle_end(
    busy_host: Host, options: tuple[str, ...], reason: str
) -> None:
    refused = busy_host.command.run("run", "-d", *options, "--idle-end", "2h", "--", "true")
    assert refused.returncode == 2
    assert reason in refused.stderr


def test_the_time_can_be_changed_while_the_job_waits_and_in_no_time_at_all(busy_host: Host) -> None:
    job = busy_host.queue("--hold", "--idle-end", "2h")
    assert busy_host.job(job)["idle_end_s"] == 7200.0
    assert busy_host.command.run("edit", job, "--idle-end", "90m").returncode == 0
    assert busy_host.job(job)["idle_end_s"] == 5400.0
    assert busy_host.command.run("edit", job, "--idle-end", "none").returncode == 0
    assert busy_host.job(job)["idle_end_s"] is None
    refused = busy_host.command.run("edit", job, "--num-gpus", "0", "--idle-end", "90m")
    assert (refused.returncode, "add --idle-end none" in refused.stderr) == (2, True), refused.stderr
    refused = busy_host.command.run("edit", job, "--idle-end", "2")
    assert refused.returncode == 2
    assert "--idle-end: '2' has no unit" in refused.stderr


def test_members_of_an_array_are_marked_and_ended_each_by_itself(busy_host: Host) -> None:
    swept = busy_host.command.run(
        "sweep", "-d", "--param", "x=1,2", "--fraction", "0.4", "--idle-end", "8s", "--json", "--", "sleep", "60{x}"
    )
    assert swept.returncode == 0, swept.stderr
    array = json.loads(swept.stdout)["id"]

    def members() -> tuple[JobStatus, ...]:
        try:
            return busy_host.daemon.jobs(f"{array}[0]", f"{array}[1]")
        except NotFound:  # there is none before it can start
            return ()

    until(lambda: [one.state for one in members()] == [JobState.RUNNING] * 2, "both run")
    busy_host.device.change(QUIET)
    until(lambda: any(one.idle_since for one in members()), "one is marked")
    until(lambda: busy_host.daemon.job(array).idle_since, "both do nothing, and so does the array")
    until(lambda: busy_host.command.run("ps", "--all").stdout.count("2 failed"), "both are ended")


def test_an_array_whose_members_do_nothing_is_marked_where_jobs_are_shown(busy_host: Host) -> None:
    swept = busy_host.command.run("sweep", "-d", "--param", "x=1,2", "--fraction", "0.4", "--", "sleep", "60{x}")
    assert swept.returncode == 0, swept.stderr
    busy_host.device.change(QUIET)
    until(lambda: ", idle " in busy_host.command.run("status").stdout, "a member is marked")
    until(lambda: ", idle " in busy_host.command.run("ps").stdout, "both do nothing, and so does the array")


@pytest.mark.parametrize(
    "line", ['idle_after = "0s"', "idle_after = 30", "idle_below = 0", "idle_below = 101", 'idle_below = "1"']
)
def test_what_cannot_be_is_refused_in_the_configuration(tmp_path: Path, line: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f"{line}\n")
    with pytest.raises(UsageError, match=line.partition(" ")[0]):
        load_settings({"GPUSCHED_CONFIG": str(path), "HOME": str(tmp_path)})


def test_both_are_read_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('idle_after = "1h"\nidle_below = 2.5\n')
    settings = load_settings({"GPUSCHED_CONFIG": str(path), "HOME": str(tmp_path)})
    assert (settings.idle_after_s, settings.idle_below) == (3600.0, 2.5)
