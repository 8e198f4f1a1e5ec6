"""A daemon on a host whose devices fall ill, and whose jobs take more than their share; with real processes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn, StandInHost

HOST = "gpus 2\n"
UUIDS = tuple(f"GPU-cafe000{index}-5ca1-ab1e-0000-00000000da7a" for index in range(2))


class Watched:
    """A command line with a daemon, on a host that a test changes."""

    def __init__(self, home: Path, host: StandInHost) -> None:
        self.host = host
        config = home / "config.toml"
        config.write_text("overrun_grace = 0.5\n")
        library = host.variables
        self.command = Command(home, library | {"GPUSCHED_CONFIG": str(config)})

    def devices(self) -> Any:
        return json.loads(self.command.run("status", "--json").stdout)["devices"]

    def is_drained(self, index: int, words: str) -> bool:
        device = self.devices()[index]
        return device["health"] == "error" and words in device["problem"]

    def jobs(self) -> Any:
        return list(self.command.jobs().values())


@pytest.fixture
def watched(tmp_path: Path, stand_in: StandIn) -> Iterator[Watched]:
    watched = Watched(tmp_path, stand_in.host(HOST))
    assert watched.command.run("daemon", "start").returncode == 0
    yield watched
    watched.command.end()


def test_an_xid_drains_its_device_until_a_person_lifts_it_and_jobs_go_elsewhere(watched: Watched) -> None:
    watched.host.change(HOST + "event 1 xid 31\nevent 1 xid 79\n")
    until(lambda: watched.is_drained(1, "Xid 79, the GPU has fallen off the bus"), "GPU 1 is drained")
    assert watched.devices()[0]["health"] == "ok"
    held = watched.command.run("run", "--num-gpus", "1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert held.stdout.strip() == UUIDS[0]
    waits = watched.command.start("run", "--num-gpus", "2", "--", "true")
    until(lambda: any("Xid 79" in (job["why"] or "") for job in watched.jobs()), "a job for both devices waits")
    (problem,) = json.loads(watched.command.run("daemon", "status", "--json").stdout)["problems"]
    assert problem == "GPU 1 takes nothing new: Xid 79, the GPU has fallen off the bus"
    both = watched.command.run("daemon", "drain", "0").stdout.splitlines()
    assert both == [problem, "GPU 0 takes nothing new: drained by hand"]
    assert watched.command.run("daemon", "undrain", "0").stdout.strip() == problem
    assert watched.command.run("daemon", "undrain", "1").returncode == 0
    assert watched.devices()[1]["health"] == "ok"
    assert waits.wait(PATIENCE_S) == 0


def test_hardware_trouble_of_a_device_is_notified_once_and_a_persons_drain_is_not(
    watched: Watched, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    note = f'printf "%s|" "$GPUSCHED_EVENT_TITLE" "$GPUSCHED_EVENT_MESSAGE" "$GPUSCHED_EVENT_UUID" >> {out}'
    (tmp_path / "config.toml").write_text(f"[notify]\ncommand = '''{note}'''\nevents = ['device-drained']\n")
    watched.command.run("daemon", "stop")
    watched.command.run("daemon", "start")

    watched.command.run("daemon", "drain", "0")
    watched.host.change(HOST + "event 1 xid 79\nevent 1 xid 48\n")

    until(lambda: out.read_text().count("|") == 3, "the event")
    title, message, uuid, _ = out.read_text().split("|")
    assert (title, uuid) == ("GPU 1 takes nothing new", UUIDS[1])
    assert "Xid 79, the GPU has fallen off the bus" in message


def test_a_drain_outlives_the_daemon(watched: Watched) -> None:
    watched.host.change(HOST + "event 0 xid 48\n")
    until(lambda: watched.is_drained(0, "Xid 48, a double-bit memory error"), "GPU 0 is drained")
    watched.host.change(HOST)
    assert watched.command.run("daemon", "stop").returncode == 0
    assert watched.is_drained(0, "Xid 48, a double-bit memory error")
    assert watched.command.run("daemon", "start").returncode == 0
    assert watched.is_drained(0, "Xid 48, a double-bit memory error")


def test_a_command_that_takes_more_than_its_share_is_warned_and_then_ended_as_an_overrun(watched: Watched) -> None:
    run = watched.command.start("run", "--memory", "1000MiB", "--", "sleep", "600")
    until(lambda: any(job["state"] == "running" for job in watched.jobs()), "it runs")
    (replica,) = watched.jobs()[0]["replicas"]
    pid, share = replica["pid"], replica["share_mib"]
    watched.host.change(f"{HOST}process 0 C {pid} {share + 700}\nset 0 used {share + 700}\n")
    warned = f"uses {share + 700} of its {share} MiB on GPU 0"
    until(lambda: warned in (watched.command.state / "daemon.log").read_text(), "it is warned")
    assert run.wait(PATIENCE_S) != 0
    (replica,) = watched.jobs()[0]["replicas"]
    assert replica["exit"]["kind"] == "overrun"
    assert f"{share + 700} of its {share} MiB" in replica["exit"]["message"]


def test_a_warning_is_taken_back(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("overrun_grace = 3600\n")
    assert watched.command.run("daemon", "stop").returncode == 0
    assert watched.command.run("daemon", "start").returncode == 0
    run = watched.command.start("run", "--memory", "1000MiB", "--", "sleep", "600")
    until(lambda: any(job["state"] == "running" for job in watched.jobs()), "it runs")
    pid = watched.jobs()[0]["replicas"][0]["pid"]
    watched.host.change(f"{HOST}process 0 C {pid} 2000\nset 0 used 2000\n")
    until(lambda: watched.jobs()[0]["replicas"][0]["warning"], "it is warned")
    watched.host.change(f"{HOST}process 0 C {pid} 900\nset 0 used 900\n")
    until(lambda: not watched.jobs()[0]["replicas"][0]["warning"], "the warning is gone")
    run.kill()
    run.wait()


def test_the_most_that_the_driver_shows_is_kept_over_a_restart_of_the_daemon_and_after_the_end(
    watched: Watched,
) -> None:
    run = watched.command.start("run", "--memory", "1000MiB", "--", "sleep", "600")
    until(lambda: any(job["state"] == "running" for job in watched.jobs()), "it runs")
    pid = watched.jobs()[0]["replicas"][0]["pid"]

    def peak() -> Any:
        return [usage["device_mib"] for usage in watched.jobs()[0]["replicas"][0]["usage"]]

    watched.host.change(f"{HOST}process 0 C {pid} 800\nset 0 used 800\n")
    until(lambda: peak() == [800], "it is seen")
    watched.host.change(f"{HOST}process 0 C {pid} 300\nset 0 used 300\n")
    assert watched.command.run("daemon", "stop").returncode == 0
    assert watched.command.run("daemon", "start").returncode == 0
    assert peak() == [800]
    assert watched.command.run("daemon", "stop").returncode == 0
    run.terminate()
    run.wait(PATIENCE_S)
    assert watched.command.run("daemon", "start").returncode == 0
    until(lambda: watched.jobs()[0]["ended"], "it has ended")
    assert peak() == [800], "though no daemon ran when it ended"
