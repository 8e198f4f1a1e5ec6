"""What a person sees of a running job: drawn from values, so that it can be looked at here."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from rich.console import Console

from gpusched.model.plan import DeviceShare
from gpusched.model.status import (
    ExitReason,
    JobState,
    JobStatus,
    JoinedHost,
    JoinedJob,
    ReplicaState,
    ReplicaStatus,
)
from gpusched.render.chart import draw_chart
from gpusched.render.job_format import plain_progress
from gpusched.render.launch import Scene, draw_job


def replica(name: str, **known: Any) -> ReplicaStatus:
    return ReplicaStatus(name=name, role=name.partition(".")[0], **({"state": ReplicaState.RUNNING} | known))


def drawn(
    *replicas: ReplicaStatus,
    size: tuple[int, int] = (120, 40),
    job: Mapping[str, Any] | None = None,
    latest: Mapping[str, object] | None = None,
    points: Sequence[tuple[float, float]] = (),
    frame: str = "",
) -> str:
    known = {"state": JobState.RUNNING, "counts": (), **(job or {})}
    status = JobStatus(id="snake-4", workload="snake", replicas=replicas, run_dir="/x", created=100.0, **known)
    scene = Scene(job=status, latest=latest or {}, points=points, now=163.0, frame=frame)
    console = Console(width=size[0], height=size[1], color_system=None)
    with console.capture() as capture:
        console.print(draw_job(scene, *size))
    return capture.get()


def test_each_replica_shows_its_state_and_its_numbers() -> None:
    replicas = {"actor.0": {"steps_per_s": 450, "score": 2.25}}
    report = {"time": 101.0, "step": 5000, "steps_per_s": 900, "score": 1.5, "replicas": replicas}

    lines = drawn(replica("learner.0", pid=11), replica("actor.0", pid=12), latest=report).splitlines()

    assert "snake-4  running  1m03s  2 of 2 processes running" in lines[0]
    assert "steps 5,000   steps/s 900   score 1.50" in lines[1]
    assert any(line.split()[:5] == ["actor.0", "running", "12", "450", "2.25"] for line in lines)


def test_a_replica_with_several_devices_shows_them_all() -> None:
    more = (DeviceShare(device_index=3, device_uuid="GPU-d", share_mib=100),)
    seen = drawn(replica("learner.0", device_index=1, device_uuid="GPU-b", limit_mib=90, further=more))
    assert "GPU 1, 3" in seen


def test_who_has_begun_its_work_is_ready_and_the_first_line_counts_them() -> None:
    lines = drawn(replica("learner.0", pid=11), replica("actor.0", pid=12, ready=104.5)).splitlines()

    assert "snake-4  running  1m03s  1 of 2 ready" in lines[0]
    assert any(line.split()[:2] == ["learner.0", "running"] for line in lines)
    assert any(line.split()[:2] == ["actor.0", "ready"] for line in lines)


def test_when_all_are_ready_the_first_line_says_after_how_long() -> None:
    both = [replica("learner.0", ready=103.0), replica("actor.0", ready=108.21)]

    assert "all 2 processes ready after 7.2 s" in drawn(*both, job={"started": 101.0})
    again = [both[0], replica("actor.0", ready=150.0, restarts=1)]
    assert "all 2 processes ready\n" in drawn(*again, job={"started": 101.0}).replace(" \n", "\n")


def test_while_modules_are_preloaded_the_view_says_so() -> None:
    shown = drawn(replica("actor.0", state=ReplicaState.STARTING), job={"note": "preloading tensorflow"})

    assert "preloading tensorflow …" in shown


def test_a_backoff_counts_down_and_says_why_the_last_attempt_ended() -> None:
    killed = ExitReason(kind="signalled", signal=9)

    shown = drawn(replica("actor.1", state=ReplicaState.BACKOFF, retry_at=167.0, restarts=2, exit=killed))

    assert "backoff 4s" in shown
    assert "killed by SIGKILL" in shown


def test_simulated_devices_are_marked() -> None:
    shown = drawn(
        replica("actor.0", device_index=1, device_uuid="SIM-1", limit_mib=1133),
        job={"simulated": True, "machine": "p3.8xlarge", "counts": (0, 1)},
    )

    assert "p3.8xlarge (simulated)" in shown
    assert "GPU 1 (simulated) 1133 MiB" in shown


def test_many_replicas_fit_the_terminal_and_those_in_trouble_are_shown() -> None:
    crowd = [replica(f"actor.{rank}") for rank in range(200)]
    crowd[150] = replica("actor.150", state=ReplicaState.FAILED)

    shown = drawn(*crowd, size=(100, 30))

    assert shown.count("\n") <= 30
    assert "actor.150" in shown
    assert "189 running" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_view_is_never_wider_than_the_terminal(width: int) -> None:
    points = [(float(at), at / 10) for at in range(50)]

    shown = drawn(replica("learner.0"), latest={"step": 1}, points=points, size=(width, 30), frame="+--+\n|()|\n+--+")

    assert max(map(len, shown.splitlines())) <= width


def test_a_chart_shows_its_range_and_rises() -> None:
    lines = draw_chart([(float(x), float(x)) for x in range(100)], 60, 5, unicode=False)

    assert lines[0].split()[0] == "99.00"
    assert lines[-1].split()[0] == "0.00"
    assert lines[-1].index("*") < lines[0].index("*")


@pytest.mark.parametrize("points", [[], [(0.0, 1.0)], [(0.0, 3.0), (0.0, 3.0)], [(1.0, -2.0), (2.0, -2.0)]])
def test_a_chart_of_little_is_still_a_chart(points: list[tuple[float, float]]) -> None:
    assert len(draw_chart(points, 40, 4, unicode=True)) == 4


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"step": 1000, "steps_per_s": 50.4, "score": 1.234}, "step 1,000  50 steps/s  score 1.23"),
        ({"score": None, "note": "drawing"}, "drawing"),
        ({"step": -0.4, "score": -0.0}, "step 0  score 0.00"),
        ({"score": 0.00412}, "score 0.00412"),
        ({"score": -0.001}, "score -0.001"),
        ({"step": 7, "done": 0.416, "score": 1}, "step 7  42 % done  score 1.00"),
        ({"done": 7}, ""),
        ({"done": "most"}, ""),
        ({}, ""),
    ],
)
def test_a_report_is_one_line_of_what_it_tells(report: Mapping[str, object], line: str) -> None:
    assert plain_progress(report) == line


def test_a_steep_curve_has_no_holes() -> None:
    lines = draw_chart([(0.0, 0.0), (49.0, 0.0), (50.0, 10.0), (100.0, 10.0)], 60, 8, unicode=False)

    assert all("*" in line for line in lines)


def test_hosts_that_joined_have_a_line_each_up_to_four() -> None:
    hosts = tuple(
        JoinedHost(host=f"lab{n}", actors=4, connected=n, batches=1200, bytes=3 << 20, address="10.0.0.2")
        for n in range(1, 7)
    )

    shown = drawn(replica("learner.0"), job={"listen": "tcp://0.0.0.0:5555", "joined": hosts})
    alone = drawn(replica("learner.0"), job={"listen": "tcp://0.0.0.0:5555"})

    assert "lab1 (10.0.0.2): 1 of 4 actors, 1,200 batches, 3.0 MiB" in shown
    assert "lab5" not in shown
    assert "and 2 more hosts" in shown
    assert "listens at tcp://0.0.0.0:5555" in alone


def test_a_job_that_joined_another_says_which_and_waits_for_no_report() -> None:
    joins = JoinedJob(endpoint="tcp://10.0.0.1:5555", job="snake-9", host="lab2")

    shown = drawn(replica("actor.0"), job={"joins": joins})

    assert "joins snake-9 at tcp://10.0.0.1:5555 as lab2" in shown
    assert "waiting for the first report" not in shown
