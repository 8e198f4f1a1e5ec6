"""listen and join: a launch of Python takes actors of another launch of Python, with a key, here on one host."""

import json
from pathlib import Path

import pytest

import gpusched
from gpusched.errors import HostFault, NotFound, UsageError
from tests.cli.command import Command
from tests.patience import until
from tests.ports import free_port


def feeding(command: Command) -> str:
    path = Path(command.toy("feeding.py", memory=False))
    path.write_text(path.read_text().replace('"-S", ', ""))  # it imports NumPy
    return str(path)


def listening(workload: str, **given: bool) -> gpusched.Job:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    job = gpusched.launch(workload, procs=1, machine="cpu", listen=endpoint, insecure=given.get("insecure", False))
    until(lambda: job.status().state == "running" and (job.run_dir / "fed.json").exists(), "the learner has an actor")
    return job


@pytest.mark.parametrize("detach", [False, True], ids=["join", "join -d"])
def test_actors_that_join_feed_the_learner_and_end_with_it(detach: bool, command: Command) -> None:
    workload = feeding(command)
    job = listening(workload)
    endpoint = str(job.status().listen)
    key = job.run_dir / "keys" / "join.key"

    joined = gpusched.join(endpoint, key=key, workload=workload, procs=2, machine="cpu", detach=detach)
    until(lambda: len(json.loads((job.run_dir / "fed.json").read_text())) == 3, "all three actors feed the learner")
    (job.run_dir / "end").touch()

    assert job.how_to_join == (f"gpusched join {endpoint} --key {key} --procs 1",)
    assert [one.name for one in joined.wait().replicas] == ["actor.0", "actor.1"]
    assert (job.wait().state, joined.wait().state) == ("succeeded", "succeeded")


def test_a_wrong_way_to_join_is_refused_and_leaves_no_job(command: Command) -> None:
    workload = feeding(command)
    job = listening(workload, insecure=True)
    endpoint = str(job.status().listen)
    other = command.home / "other" / "workload.toml"
    other.parent.mkdir()
    other.write_text(Path(workload).read_text().replace("stop_grace = 2", "stop_grace = 3"))

    with pytest.raises(HostFault, match="does not have what the learner has"):
        gpusched.join(endpoint, insecure=True, workload=other)
    with pytest.raises(UsageError, match="with which key"):
        gpusched.join(endpoint)
    with pytest.raises(UsageError, match="learner_memory"):
        gpusched.join(endpoint, insecure=True, learner_memory="1GiB")
    with pytest.raises(NotFound):
        gpusched.join(endpoint, key="no-such.key")
    assert [path.name for path in (command.state / "jobs").iterdir()] == [job.id]


def test_a_join_in_spite_of_differences_names_them(command: Command) -> None:
    workload = feeding(command)
    endpoint = str(listening(workload, insecure=True).status().listen)
    other = command.home / "other" / "workload.toml"
    other.parent.mkdir()
    other.write_text(Path(workload).read_text().replace("stop_grace = 2", "stop_grace = 3"))

    joined = gpusched.join(endpoint, insecure=True, workload=other, procs=1, machine="cpu", different=True)

    assert any(one.startswith("not as the learner has it: ") for one in joined.warnings)


def test_a_submitted_job_shows_how_others_will_join_it(command: Command) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    job = gpusched.submit(feeding(command), procs=1, machine="cpu", listen=endpoint, hold=True)

    assert job.how_to_join == (f"gpusched join {endpoint} --key {job.run_dir}/keys/join.key --procs 1",)
    assert gpusched.submit(feeding(command), machine="cpu", hold=True).how_to_join == ()
