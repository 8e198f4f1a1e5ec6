"""The daemon under a real systemd: both units, as an administrator and a user would set them up."""

import json

import pytest

from tests.patience import until
from tests.systemd.machine import Machine
from tests.systemd.person import Person

NO_DEVICE = ("--num-gpus", "0")


@pytest.fixture(params=["alice", "bob"], ids=["system instance", "user unit"])
def person(request: pytest.FixtureRequest) -> Person:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Person)
    return found


def status_of(machine: Machine, pid: int, key: str) -> str:
    """One line of /proc/PID/status, such as NoNewPrivs."""
    lines = (machine.root / f"proc/{pid}/status").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith(f"{key}:"))


def test_a_unit_has_started_when_the_daemon_answers(person: Person) -> None:
    assert person.property("ActiveState") == "active"
    assert person.jobs() == {}
    told = json.loads(person.gpusched("daemon", "status", "--json"))
    assert told["pid"] == person.daemon()
    assert "the daemon serves" in person.journal()
    until(lambda: person.property("StatusText") == "jobs: 0 on their way, 0 in the queue", "it says what it does")


def test_a_unit_beside_a_daemon_that_a_command_started_fails_once_and_says_why(person: Person) -> None:
    person.systemctl("stop", person.unit)
    person.gpusched("daemon", "start")
    with pytest.raises(AssertionError, match=r"Job for gpusched.* failed"):
        person.start()
    assert person.property("ActiveState") == "failed"
    assert person.property("NRestarts") == "0"
    assert "a daemon runs for" in person.journal()
    person.gpusched("daemon", "stop")
    person.start()


def test_a_daemon_that_hangs_is_replaced_and_its_jobs_go_on(person: Person) -> None:
    job = person.submit(*NO_DEVICE)
    pid, daemon = person.until_runs(job), person.daemon()
    person.machine.run("kill", "-STOP", str(daemon))
    person.until_replaced(daemon)
    assert person.until_runs(job) == pid
    assert person.lives(pid)
    assert "Watchdog timeout" in person.journal()


def test_a_daemon_that_is_killed_is_replaced_and_the_next_one_knows_its_jobs(person: Person) -> None:
    job = person.submit(*NO_DEVICE)
    pid, daemon = person.until_runs(job), person.daemon()
    person.machine.run("kill", "-KILL", str(daemon))
    person.until_replaced(daemon)
    assert person.until_runs(job) == pid
    person.gpusched("stop", job)
    person.until_state(job, "cancelled")
    assert not person.lives(pid)
    assert "ended in order" in person.gpusched("logs", job)


def test_stopping_and_restarting_the_unit_leaves_jobs_running(person: Person) -> None:
    job = person.submit(*NO_DEVICE)
    pid = person.until_runs(job)
    person.systemctl("restart", person.unit)
    assert person.until_runs(job) == pid
    person.systemctl("stop", person.unit)
    assert person.property("Result") == "success"
    assert person.lives(pid)
    person.systemctl("start", person.unit)
    assert person.until_runs(job) == pid


def test_stopping_the_unit_of_a_job_ends_the_job_in_order(person: Person) -> None:
    job = person.submit(*NO_DEVICE)
    pid = person.until_runs(job)
    person.run("systemctl", "--user", "stop", person.job_unit(job))
    assert not person.lives(pid)
    person.until_state(job, "cancelled")
    assert "ended in order" in person.gpusched("logs", job)
    assert person.job_unit(job) == ""


def test_a_job_may_do_what_its_user_may_and_is_outside_the_sandbox_of_the_daemon(alice: Person) -> None:
    job = alice.submit(*NO_DEVICE)
    pid, daemon = alice.until_runs(job), alice.daemon()
    machine = alice.machine
    assert (machine.root / "home/alice/pid").read_text().strip() == str(pid)
    filters = status_of(machine, 1, "Seccomp_filters")  # those of the machine itself
    assert [status_of(machine, pid, key) for key in ("NoNewPrivs", "Seccomp_filters")] == ["0", filters]
    assert status_of(machine, daemon, "NoNewPrivs") == "1"
    assert int(status_of(machine, daemon, "Seccomp_filters")) > int(filters)
    unit = (machine.root / f"proc/{pid}/cgroup").read_text()
    assert f"gpusched-{job}-" in unit
    assert "gpusched@alice" not in unit


def test_the_sandboxed_daemon_writes_to_its_own_directories_only(alice: Person) -> None:
    """Even if it were root: its file system is what forbids it."""
    runtime = f"/run/user/{alice.machine.uid('alice')}/gpusched"
    inside = ("nsenter", f"--target={alice.daemon()}", "--mount", "--root", "touch")
    for own in ("/home/alice/.local/state/gpusched", "/run/gpusched", runtime, "/tmp"):
        alice.machine.run(*inside, f"{own}/written")
    for other in ("/home/alice", "/home/alice/.local/state", "/home/bob", "/root", "/etc", "/usr", "/var/lib", "/run"):
        told = alice.machine.attempt(*inside, f"{other}/written")
        assert "Read-only file system" in told.stderr, other


def test_a_job_has_the_environment_in_which_it_was_submitted_and_nothing_of_a_unit(person: Person) -> None:
    job = person.submit(*NO_DEVICE, command="env")
    person.until_state(job, "succeeded")
    names = {line.partition("=")[0] for line in person.gpusched("logs", job).splitlines()}
    assert "NVML_STAND_IN" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "SYSTEMD_EXEC_PID"}


def test_two_users_wait_for_each_other_and_cannot_look_into_each_other(alice: Person, bob: Person) -> None:
    first = alice.submit("--fraction", "0.7")
    alice.until_runs(first)
    second = bob.submit("--fraction", "0.7")
    until(lambda: f"alice/{first}" in str(bob.jobs()[second]["why"]), "bob's job waits for alice's")
    state = alice.jobs()[first]["run_dir"]
    for path in (state, f"/run/user/{alice.machine.uid('alice')}/gpusched", f"/proc/{alice.until_runs(first)}/environ"):
        assert "Permission denied" in bob.machine.attempt("cat", path, user="bob").stderr
    alice.gpusched("stop", first)
    bob.until_runs(second)


def test_a_daemon_serves_on_after_the_service_manager_of_its_user_was_gone_for_a_while(alice: Person) -> None:
    """As at a logout without linger: jobs end in order, and /run/user/UID goes and comes back."""
    job, daemon = alice.submit(*NO_DEVICE), alice.daemon()
    pid, uid = alice.until_runs(job), alice.machine.uid("alice")
    alice.machine.run("systemctl", "stop", f"user@{uid}", f"user-runtime-dir@{uid}")
    assert not alice.lives(pid)
    until(lambda: "no client can reach the daemon" in alice.journal(), "the daemon misses its socket")
    alice.machine.run("systemctl", "start", f"user@{uid}")
    until(lambda: alice.machine.attempt("gpusched", "ps", user="alice").returncode == 0, "the daemon answers again")
    assert alice.daemon() == daemon
    assert alice.jobs()[job]["state"] == "cancelled"
    alice.until_runs(alice.submit(*NO_DEVICE))


def test_a_job_directory_may_have_any_name(machine: Machine, bob: Person) -> None:
    """systemd replaces $ and % in much of what it is told."""
    odd = "/home/bob/a $HOME %h 'directory'"
    environ = bob.DEVICES | {"GPUSCHED_STATE_DIR": odd}
    argv = ["systemd-run", "--user", "--quiet", "--service-type=notify", "--unit=odd"]
    argv += [f"--setenv={name}={value}" for name, value in environ.items()]
    machine.run(*argv, "--", "/home/bob/.local/bin/gpusched", "daemon", "run", user="bob")
    try:
        words = ("gpusched", "run", "--detach", "--json", *NO_DEVICE, "--", "sh", "-c", "echo it ran")
        job = json.loads(machine.run(*words, user="bob", env=environ))["id"]
        machine.run("gpusched", "wait", job, user="bob", env=environ)
        assert machine.run("gpusched", "logs", job, user="bob", env=environ).strip().endswith("it ran")
    finally:
        bob.run("systemctl", "--user", "stop", "odd")


def test_a_notification_is_sent_outside_the_sandbox_of_the_daemon(person: Person) -> None:
    """The command writes to the home, and sees a network: the unit of the system instance has neither."""
    script = "ls /sys/class/net >~/net; echo $GPUSCHED_EVENT_JOB $GPUSCHED_STATE_DIR >~/notified"
    job = person.submit(*NO_DEVICE, "--notify", script, command="true")
    person.until_state(job, "succeeded")
    until(lambda: person.run("sh", "-c", "cat ~/notified || true").strip(), "it is sent")
    told, state = person.run("sh", "-c", "cat ~/notified").split()
    assert told == job
    assert state == json.loads(person.gpusched("daemon", "status", "--json"))["state_dir"]
    assert person.run("sh", "-c", "cat ~/net") == person.run("ls", "/sys/class/net")
    person.run("sh", "-c", "rm ~/notified ~/net")
