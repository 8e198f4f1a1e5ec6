"""`ps --user`: the jobs of other users that hold devices of this host, as far as their leases show them."""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gpusched.leases.directory import LeaseDirectory
from gpusched.model.lease import Lease
from tests.cli.command import Command
from tests.stand_in.library import StandIn
from tests.supervisor.leasing import NOBODY, Fork, for_all_users

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be several users")

DEVICES = [f"GPU-cafe000{index}-5ca1-ab1e-0000-00000000da7a" for index in range(4)]


@pytest.fixture
def shared(stand_in: StandIn, tmp_path: Path) -> Iterator[Command]:
    """The command line of a person on a host where another user's snake-4 holds a part of GPU 1, and GPUs 2 and 3."""
    leases = [
        Lease(device_uuid=DEVICES[1], share_mib=1550, job="snake-4", replica="actor.0"),
        Lease(device_uuid=DEVICES[2], share_mib=9000, job="snake-4", replica="learner.0", whole=True),
        Lease(device_uuid=DEVICES[3], share_mib=9000, job="snake-4", replica="learner.0", whole=True),
    ]
    host = stand_in.host("gpus 4\n").variables
    with ExitStack() as stack:
        directory = LeaseDirectory(stack.enter_context(for_all_users()))
        run_dir = directory.path.parent / "snake-4"
        run_dir.mkdir()
        os.chown(run_dir, NOBODY, NOBODY)

        def commit() -> None:
            with directory.locked():
                kept.append(directory.commit("snake-4", leases, run_dir))

        kept: list[object] = []
        other = Fork(NOBODY, commit)
        stack.callback(other.end)
        assert other.told == b"done"
        command = Command(tmp_path, host | {"GPUSCHED_LEASE_DIR": str(directory.path)})
        stack.callback(command.end)
        yield command


def listed(command: Command, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(command.run("ps", "--json", *words).stdout)["jobs"])


def test_a_job_of_another_user_is_shown_with_what_it_holds_and_since_when(shared: Command) -> None:
    (job,) = listed(shared, "--user", "nobody")
    assert (job["id"], job["user"], job["state"], job["workload"]) == ("nobody/snake-4", "nobody", "running", "snake")
    assert [(one["name"], one["device_index"], one["share_mib"]) for one in job["replicas"]] == [
        ("actor.0", 1, 1550),
        ("learner.0", 2, 9000),
    ]
    assert [one["device_index"] for one in job["replicas"][1]["further"]] == [3]
    assert (job["ran_s"] >= 0, job["started"] > 1e9, job["command"], job["cwd"]) == (True, True, [], None)
    head, line = shared.run("ps", "--user", "nobody").stdout.splitlines()
    assert head.split() == ["ID", "STATE", "PROCS", "GPUS", "MEMORY", "TIME", "AGE", "COMMAND"]
    assert line.split()[:6] == ["nobody/snake-4", "running", "2/2", "1-3", "19.1", "GiB"]


def test_those_of_all_users_stand_together_and_without_the_option_only_the_persons_own(shared: Command) -> None:
    shared.run("run", "-d", "--num-gpus", "0", "--", "true")
    shared.run("wait", "run-1")
    shared.run("run", "-d", "--hold", "--num-gpus", "0", "--", "true")
    assert [job["id"] for job in listed(shared, "--user", "all")] == ["run-2", "nobody/snake-4", "run-1"]
    assert [job["user"] for job in listed(shared, "--user", "all", "--ended", "0")] == ["root", "nobody"]
    assert [job["id"] for job in listed(shared)] == ["run-2", "run-1"]
    assert [job["id"] for job in listed(shared, "--user", "root")] == ["run-2", "run-1"]


def test_a_user_without_jobs_has_none_and_one_that_the_host_does_not_know_is_refused(shared: Command) -> None:
    assert listed(shared, "--user", "daemon") == []
    told = shared.run("ps", "--user", "ada-of-nowhere")
    assert (told.returncode, "there is no user 'ada-of-nowhere'" in told.stderr) == (2, True)
    assert shared.run("ps", "--user", "all", "--state", "failed").returncode == 2
    assert shared.run("ps", "--user", "all", "run-1").returncode == 2
