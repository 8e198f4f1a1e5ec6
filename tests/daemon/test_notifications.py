"""Notifications of a real daemon: what arrives, that it arrives once the other side is back, and that nothing waits."""

import hashlib
import hmac
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.control.messages import Edit, Stop
from gpusched.model.array import Array
from gpusched.model.job import QueueChange
from gpusched.model.status import JobState
from tests.daemon.daemons import Daemon
from tests.daemon.webhook import Webhook
from tests.patience import until
from tests.stand_in.library import ROOT

QUICK = Path(__file__).with_name("quick_notifications.py")
NOTE = 'printf "%s|" "$GPUSCHED_EVENT" "$GPUSCHED_EVENT_JOB" "$GPUSCHED_EVENT_ID" >> {0}; echo >> {0}'


@pytest.fixture
def hook() -> Iterator[Webhook]:
    one = Webhook()
    yield one
    one.close()


def configure(daemon: Daemon, text: str) -> None:
    path = daemon.command.home / "config.toml"
    path.write_text(f"[notify]\n{text}\n")
    daemon.env["GPUSCHED_CONFIG"] = str(path)


def start_quick(daemon: Daemon, pause_s: float = 0.05, limit_s: float = 100.0) -> None:
    daemon.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (daemon.state / "daemon.log").open("ab") as log:
        argv = [sys.executable, str(QUICK), str(pause_s), str(limit_s)]
        daemon.process = subprocess.Popen(argv, env={**daemon.env, "PYTHONPATH": str(ROOT)}, stderr=log)
    until(lambda: daemon.pid, "the daemon listens")


def lines(path: Path) -> list[list[str]]:
    return [line.split("|")[:-1] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_command_gets_the_fields_of_each_event_in_variables(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    fields = ("", "_NAME", "_STATE", "_MESSAGE", "_EXIT_CODE", "_DIRECTORY", "_TITLE", "_DEVICE")
    printed = " ".join(f'"$GPUSCHED_EVENT{field}"' for field in fields)
    configure(daemon, f"command = '''printf '%s|' {printed} >> {out}; echo >> {out}'''\nevents = ['started', 'failed']")
    daemon.start()

    job = daemon.shell("echo bad luck; exit 3", name="train", cwd="/")

    until(lambda: len(lines(out)) == 2, "both events")
    assert lines(out) == [
        ["started", "train", "running", "", "", "/", f"train ({job}) has started", ""],
        [
            "failed",
            "train",
            "failed",
            "command.0 crashed with code 3: bad luck",
            "3",
            "/",
            f"train ({job}) has failed",
            "",
        ],
    ]


def test_a_command_may_open_as_many_files_as_the_daemon_was_started_with(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = 'echo \"$(ulimit -Sn)|\" >> {out}'")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    daemon.shell("true")
    until(lambda: lines(out), "the event")
    assert lines(out) == [["300"]]


def test_each_end_of_a_job_is_an_event_of_its_own_and_a_start_only_where_it_is_wanted(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = '''{NOTE.format(out)}'''")
    daemon.start()
    jobs = {
        daemon.submit("true"): "succeeded",
        daemon.submit("false"): "failed",
        daemon.submit("sleep", "600", time_limit_s=0.2): "time-limit",
        daemon.submit("true", hold=True): "cancelled",
        daemon.submit("/no/such/program"): "failed",
    }
    daemon.ask(Stop(ids=tuple(job for job, event in jobs.items() if event == "cancelled")))
    gone = daemon.submit("sleep", "600")
    daemon.wait(gone, JobState.RUNNING)
    until(lambda: daemon.job(gone).replicas[0].pid, "its command runs")
    for pid in (daemon.job(gone).supervisor_pid, guard_of(daemon, gone)):
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    until(lambda: len(lines(out)) == 6, "an event of each")
    assert {job: event for event, job, _ in lines(out)} == {**jobs, gone: "lost"}


def test_an_array_has_the_events_for_all_of_its_members(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = '''{NOTE.format(out)}'''\nevents = ['started', 'failed', 'succeeded', 'time-limit']")
    daemon.start()
    job = daemon.submit("sh", "-c", "test {index} != 1", array=Array(count=3, at_most=1), time_limit_s=2.0)
    after = daemon.submit("true", after_any=(job,))
    daemon.ended(after)
    until(lambda: len(lines(out)) >= 4, "the events of both")
    assert sorted(one[:2] for one in lines(out)) == sorted(
        [["started", job], ["failed", job], ["started", after], ["succeeded", after]]
    )


def guard_of(daemon: Daemon, job: str) -> int:
    status = daemon.job(job)
    return int(Path(f"/proc/{status.supervisor_pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_job_that_ran_out_of_memory_is_an_event_of_its_own_and_belongs_to_failed(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = '''{NOTE.format(out)}'''\nevents = ['failed']")
    daemon.start()

    job = daemon.shell("echo 'RuntimeError: CUDA out of memory. Tried to allocate 2 GiB'; exit 1", machine="1x16GiB")

    daemon.ended(job)
    until(lambda: lines(out), "the event")
    assert [one[:2] for one in lines(out)] == [["out-of-memory", job]]


def test_a_jobs_own_command_runs_where_the_job_did_and_beside_that_of_the_configuration(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = '''{NOTE.format(out)}'''")
    there = daemon.command.home / "there"
    there.mkdir()
    daemon.start()

    job = daemon.submit("true", cwd=str(there), notify=NOTE.format("own"))
    daemon.submit("true", cwd=str(there))

    until(lambda: len(lines(out)) == 2 and lines(there / "own"), "all events")
    assert [one[1] for one in lines(there / "own")] == [job]
    assert lines(there / "own")[0] in lines(out)  # under one id


def test_what_is_notified_of_a_job_that_waits_can_be_changed(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    daemon.start()
    job = daemon.submit("true", hold=True)

    daemon.ask(Edit(ids=(job,), change=QueueChange(notify=NOTE.format(out), hold=False)))
    daemon.ask(Stop(ids=(job,)))

    until(lambda: lines(out), "the event")
    assert lines(out)[0][:2] == ["cancelled", job]


def test_a_command_that_hangs_holds_up_neither_jobs_nor_other_destinations_nor_the_end_of_the_daemon(
    daemon: Daemon, hook: Webhook
) -> None:
    hangs = daemon.command.home / "hangs"
    configure(daemon, f"command = 'touch {hangs}; sleep 6000'\nurl = '{hook.url}'")
    start_quick(daemon)
    daemon.submit("true")
    until(hangs.exists, "the command hangs")

    jobs = [daemon.submit("true") for _ in range(3)]

    assert {job.state for job in daemon.ended(*jobs)} == {JobState.SUCCEEDED}
    until(lambda: len(hook.posted) == 4, "the URL got its events")
    hanging = [pid for pid in daemon.command.running() if cmdline(pid) == b"sleep\x006000\0"]
    assert len(hanging) == 1
    daemon.kill(signal.SIGTERM)


def test_a_command_that_hangs_is_killed_with_all_that_it_started_and_tried_again(daemon: Daemon) -> None:
    pids, good = daemon.command.home / "pids", daemon.command.home / "good"
    script = f"test -e {good} || {{ setsid sleep 7000 & echo $! >> {pids}; sleep 7000; }}"
    configure(daemon, f"command = '{script}'")
    start_quick(daemon, limit_s=0.2)

    daemon.submit("true")

    until(lambda: pids.exists() and len(pids.read_text().split()) > 1, "it was tried again")
    first = int(pids.read_text().split()[0])
    until(lambda: not Path(f"/proc/{first}").exists(), "what it started is gone")
    until(lambda: daemon.pong().undelivered, "it is shown")
    shown = daemon.pong().undelivered
    assert shown is not None
    assert (shown.waiting, shown.given_up) == (1, 0)
    assert shown.reason == "the command did not end within 0.2 s"
    good.touch()
    until(lambda: daemon.pong().undelivered is None, "it is delivered")


def test_a_command_that_fails_gets_the_same_event_again_until_it_succeeds(daemon: Daemon) -> None:
    out, good = daemon.command.home / "out", daemon.command.home / "good"
    configure(daemon, f"command = '''{NOTE.format(out)}; echo not yet >&2; test -e {good}'''")
    start_quick(daemon)
    job = daemon.submit("true")
    until(lambda: len(lines(out)) > 4, "more than the first tries")
    shown = daemon.pong().undelivered
    assert shown is not None
    assert shown.reason == "the command ended with code 1: not yet"

    good.touch()

    until(lambda: daemon.pong().undelivered is None, "it is delivered")
    count = len(lines(out))
    assert len({event_id for _, _, event_id in lines(out)}) == 1
    other = daemon.submit("true")
    until(lambda: lines(out)[-1][1] == other, "the next event")
    assert [job for _, job, _ in lines(out)] == [job] * count + [other]
    assert "could not be delivered (command)" in daemon.log
    assert "delivered again" in daemon.log


def test_a_post_has_the_fields_as_json_and_a_signature(daemon: Daemon, hook: Webhook) -> None:
    key = daemon.command.home / "key"
    key.write_text("the secret\n")
    key.chmod(0o600)
    configure(daemon, f"url = '{hook.url}'\nsecret_file = 'key'")
    daemon.start()

    job = daemon.submit("sh", "-c", "exit 4", environ={**daemon.env, "TOKEN": "hunter2"}, name="train")

    until(lambda: hook.posted, "the event")
    headers, body = hook.posted[0]
    digest = hmac.new(b"the secret", body, hashlib.sha256).hexdigest()
    assert headers["X-Gpusched-Signature"] == f"sha256={digest}"
    fields = hook.posted[0].fields
    assert headers["X-Gpusched-Event-Id"] == fields["id"]
    known = {"event": "failed", "job": job, "name": "train", "state": "failed", "exit_code": 4, "directory": "/tmp"}
    assert fields == fields | known
    assert fields["started"] <= fields["ended"] <= fields["time"]
    assert b"hunter2" not in body
    assert "secret" not in daemon.log + daemon.pong().__repr__()


def test_a_server_that_answers_500_or_late_gets_the_event_once_it_is_well(daemon: Daemon, hook: Webhook) -> None:
    configure(daemon, f"url = '{hook.url}'")
    start_quick(daemon, limit_s=0.5)
    hook.answer = 500
    daemon.submit("true")
    until(
        lambda: (shown := daemon.pong().undelivered) and shown.reason == "127.0.0.1 answered 500 Internal Server Error",
        "500",
    )
    hook.held, hook.answer = True, 200
    until(lambda: (shown := daemon.pong().undelivered) and "within 0.5 s" in shown.reason, "late")

    hook.held = False
    hook.gate.set()

    until(lambda: daemon.pong().undelivered is None, "it is delivered")
    assert len({one.fields["id"] for one in hook.posted}) == 1
    assert len({one.body for one in hook.posted}) == 1


def test_a_redirection_is_not_followed_and_no_delivery(daemon: Daemon, hook: Webhook) -> None:
    configure(daemon, f"url = '{hook.url}'")
    start_quick(daemon)
    hook.answer = 302
    daemon.submit("true")

    until(lambda: (shown := daemon.pong().undelivered) and "302" in shown.reason, "it is refused")

    hook.answer = 200
    until(lambda: daemon.pong().undelivered is None, "it is delivered")


def test_a_secret_that_others_may_read_signs_nothing(daemon: Daemon, hook: Webhook) -> None:
    key = daemon.command.home / "key"
    key.write_text("the secret")
    key.chmod(0o644)
    configure(daemon, f"url = '{hook.url}'\nsecret_file = 'key'")
    start_quick(daemon)
    daemon.submit("true")

    until(lambda: (shown := daemon.pong().undelivered) and "chmod 600" in shown.reason, "it is refused")
    assert not hook.posted
    key.chmod(0o600)
    until(lambda: hook.posted, "the event")


def test_an_event_outlives_a_daemon_that_is_killed_before_its_delivery(daemon: Daemon, hook: Webhook) -> None:
    port = hook.port
    hook.close()
    configure(daemon, f"url = '{hook.url}'")
    start_quick(daemon, pause_s=200.0)
    job = daemon.submit("true")
    until(lambda: daemon.pong().undelivered, "it was tried once")
    daemon.kill()

    again = Webhook(port)
    start_quick(daemon, pause_s=0.01)  # what is due later than this is due

    until(lambda: again.posted, "the event")
    assert [one.fields["job"] for one in again.posted] == [job]
    again.close()


def test_an_end_that_no_daemon_saw_is_an_event_of_the_next_one(daemon: Daemon, hook: Webhook) -> None:
    configure(daemon, f"url = '{hook.url}'")
    daemon.start()
    gate = daemon.command.home / "gate"
    job = daemon.shell(f"while ! test -e {gate}; do sleep 0.05; done")
    daemon.wait(job, JobState.RUNNING)
    daemon.kill()
    gate.touch()

    daemon.start()

    until(lambda: hook.posted, "the event")
    assert [(one.fields["job"], one.fields["event"]) for one in hook.posted] == [(job, "succeeded")]


@pytest.mark.parametrize("seed", range(3))
def test_however_often_the_daemon_is_killed_each_job_has_an_event_and_each_event_one_id(
    daemon: Daemon, hook: Webhook, seed: int
) -> None:
    configure(daemon, f"url = '{hook.url}'")
    jobs = []
    for round_number in range(4):
        start_quick(daemon)
        jobs += [daemon.submit("true") for _ in range(3)]
        until(lambda: len(hook.posted) > (seed + 1) * round_number, "some events")  # noqa: B023
        daemon.kill()
    start_quick(daemon)

    until(lambda: {one.fields["job"] for one in hook.posted} == set(jobs), "all events")
    ids = {(one.fields["job"], one.fields["id"]) for one in hook.posted}
    assert len(ids) == len(jobs)


def test_neither_what_is_sent_nor_a_secret_stands_in_an_argument_or_in_the_environment_of_the_process_that_sends(
    daemon: Daemon, hook: Webhook
) -> None:
    key = daemon.command.home / "key"
    key.write_text("the secret")
    key.chmod(0o600)
    configure(daemon, f"url = '{hook.url}'\nsecret_file = 'key'")
    hook.held = True
    daemon.start()
    daemon.submit("true", name="private")
    until(lambda: hook.posted, "it is being sent")

    (pid,) = [pid for pid in daemon.command.running() if b"gpusched.notifications" in cmdline(pid)]
    shown = cmdline(pid) + Path(f"/proc/{pid}/environ").read_bytes()

    assert not [one for one in (b"the secret", b"private", hook.url.encode()) if one in shown]
    hook.gate.set()


def cmdline(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_a_gpusched_in_a_command_is_in_no_job(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    nested = f"{sys.executable} -m gpusched run -d --num-gpus 0 -- sh -c"
    script = f"""test -z "$GPUSCHED_JOB" && {nested} "env > {out}.tmp; mv {out}.tmp {out}" """
    daemon.start()

    job = daemon.submit("true", notify=script, cwd=str(ROOT))

    until(out.exists, "the job that the command queued")
    inner = dict(line.partition("=")[::2] for line in out.read_text().splitlines())
    assert inner["GPUSCHED_JOB"] == "run-2"
    assert not [name for name in inner if name.startswith("GPUSCHED_EVENT")]
    assert job == "run-1"


def test_notifications_for_what_the_configuration_no_longer_has_are_dropped(daemon: Daemon) -> None:
    configure(daemon, "command = 'false'")
    start_quick(daemon, pause_s=200.0)
    daemon.submit("true")
    until(lambda: daemon.pong().undelivered, "it was tried once")
    daemon.kill()
    configure(daemon, "")

    start_quick(daemon, pause_s=0.01)

    until(lambda: daemon.pong().undelivered is None, "it is dropped")
    assert "the configuration has no command any more" in daemon.log


def test_a_launch_in_the_foreground_has_no_notifications(daemon: Daemon) -> None:
    out = daemon.command.home / "out"
    configure(daemon, f"command = '''{NOTE.format(out)}'''")
    daemon.start()
    workload = daemon.command.toy("fails.py", actors=1, memory=False)

    assert daemon.command.run("launch", workload, "--machine", "1x16GiB").returncode in (0, 1)

    job = daemon.submit("true")
    until(lambda: lines(out), "the event of another")
    assert [one[1] for one in lines(out)] == [job]


def test_a_test_event_shows_what_came_of_it(daemon: Daemon, hook: Webhook) -> None:
    configure(daemon, f"command = 'exit 7'\nurl = '{hook.url}'")

    done = daemon.command.run("notify", "test", "--json")

    assert done.returncode == 1
    assert msgspec.json.decode(done.stdout) == {
        "deliveries": [
            {"destination": "command", "problem": "the command ended with code 7"},
            {"destination": "url", "problem": None},
        ]
    }
    assert hook.posted[0].fields["event"] == "test"


def test_daemon_status_and_the_doctor_show_what_could_not_be_delivered(daemon: Daemon) -> None:
    configure(daemon, "command = 'echo no network; exit 6'")
    start_quick(daemon)
    daemon.submit("true")
    until(lambda: daemon.pong().undelivered, "it was tried")

    reason = "the command ended with code 6: no network"
    assert (
        f"1 notifications could not be delivered yet, 0 were given up: {reason}"
        in daemon.command.run("daemon", "status").stdout
    )
    findings: list[dict[str, Any]] = msgspec.json.decode(daemon.command.run("doctor", "--json").stdout)["findings"]
    (found,) = [one for one in findings if one["check"] == "notifications"]
    assert found["state"] == "warning"
    assert reason in found["found"]
