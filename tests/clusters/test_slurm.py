"""`launch --engine slurm` on a real Slurm of three nodes, each with a network of its own."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.clusters.hosts import Node
from tests.clusters.person import Person
from tests.clusters.slurm import Slurm
from tests.patience import PATIENCE_S, until
from tests.stand_in.library import StandIn

ALL = {"learner.0", *(f"actor.{rank}" for rank in range(8))}


def words_of(pid: int) -> bytes:
    """The command line and the environment of a process."""
    try:
        return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    except OSError:  # it has just ended
        return b""


def secrets_in(directory: Path) -> list[bytes]:
    return [json.loads(path.read_bytes())["secret"].encode() for path in directory.rglob("*.key")]


def workers(nodes: list[Node]) -> list[int]:
    """The processes of gpusched and of the workload on the nodes."""
    return [pid for node in nodes for pid in (*node.pids_of("gpusched"), *node.pids_of("workloads"))]


def relays(person: Person) -> list[int]:
    return [pid for pid in person.command.running() if b"gpusched.engines.slurm.engine\0" in words_of(pid)]


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_job_on_three_nodes_trains_and_outlives_a_node_and_who_submitted_it(slurm: Slurm, person: Person) -> None:
    nodes = list(slurm.nodes)
    job = person.launch("slurm", "--gpus-per-node", "0", "--updates", "100000000")
    until(lambda: person.running(job).keys() == ALL, "all nine run and feed the learner")
    by_node = person.running(job)
    assert by_node["learner.0"] == "n1"
    assert set(by_node.values()) == {"n1", "n2", "n3"}
    until(lambda: person.step(job) > 0, "it trains")

    secrets = secrets_in(person.directory(job))
    assert len(secrets) == 2, "its own, and one for the actors"
    everything = b"".join(map(words_of, workers(nodes)))
    batch = slurm.run("scontrol", "write", "batch_script", slurm.run("squeue", "-h", "-o", "%i").strip(), "-").encode()
    assert b"gpusched.engines.slurm.batch" in batch
    assert not [secret for secret in secrets if secret in everything + batch]

    os.kill(relays(person)[0], signal.SIGKILL)
    submitted = slurm.run("squeue", "-h", "-o", "%i")
    until(lambda: "found Slurm job" in (person.directory(job) / "logs" / "slurm.0.log").read_text(), "it is found")
    assert slurm.run("squeue", "-h", "-o", "%i") == submitted

    learner = nodes[0].pids_of("mine.learner")
    gone = {name for name, node in by_node.items() if node == "n3"}
    slurm.kill_node(nodes[2])
    slurm.start_node(nodes[2])
    until(lambda: not gone & person.running(job).keys(), "the node is missed")
    seen = person.step(job)
    until(lambda: person.step(job) > seen, "the others go on")
    until(lambda: person.running(job).keys() == ALL, "its actors are back")
    assert nodes[0].pids_of("mine.learner") == learner

    assert re.search(r"^actor\.7 +\| --- actor\.7, attempt 1,", person.run("logs", job), re.MULTILINE)
    follower = person.command.start("logs", "-f", job, "--lines", "1", cwd=person.command.home)
    person.run("stop", job)
    assert person.job(job)["state"] == "cancelled"
    assert "actor.7   | " in follower.communicate(timeout=PATIENCE_S)[0]
    until(lambda: not slurm.run("squeue", "-h"), "Slurm has no job of it")
    until(lambda: not workers(nodes), "nothing is left on any node")
    assert list((person.directory(job) / "learner" / job).glob("weights.npz"))
    assert not secrets_in(person.directory(job))


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_node_plans_on_what_it_was_handed_scancel_cancels_and_a_script_runs_by_hand(
    slurm: Slurm, person: Person, stand_in: StandIn
) -> None:
    person.gives_devices(stand_in.host("gpus 4\nset * used 0\n").variables)
    job = person.launch("slurm", "--updates", "100000000", nodes=1)
    until(lambda: person.running(job).keys() == ALL, "it runs")
    told = person.job(job)
    assert {one["device_index"] for one in told["replicas"]} == {0, 1}, "Slurm has handed over two of four"
    actor = next(one for one in told["replicas"] if one["name"] == "actor.7")
    assert f"CUDA_VISIBLE_DEVICES={actor['device_uuid']}\0".encode() in words_of(actor["pid"])
    slurm.run("scancel", slurm.run("squeue", "-h", "-o", "%i").strip())
    until(lambda: person.job(job)["state"] == "cancelled", "it is cancelled here")
    assert person.job(job)["message"] == "cancelled in Slurm (scancel)"
    until(lambda: not workers(list(slurm.nodes)), "nothing is left on any node")

    dry = ("launch", "mine", "--engine", "slurm", "--procs", "4", "--updates", "5", "--dry-run")
    script = person.command.home / "mine.sh"
    script.write_text(person.run(*dry))
    env = person.command.env | slurm.environ
    subprocess.run(["sbatch", str(script)], env=env, cwd=person.command.home, check=True, timeout=PATIENCE_S)
    until(
        lambda: "COMPLETED" in slurm.run("squeue", "-h", "-t", "all", "-n", "gpusched-mine", "-o", "%T"), "it is done"
    )
    by_hand = next((person.command.state / "jobs").glob("mine-slurm-*"))
    assert json.loads((by_hand / "progress.jsonl").read_text().splitlines()[-1])["step"] == 5
    assert not secrets_in(by_hand)


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_job_that_has_to_make_room_saves_and_goes_on_from_there_when_slurm_lets_it(
    slurm: Slurm, person: Person
) -> None:
    job = person.launch("slurm", "--gpus-per-node", "0", "--updates", "100000000")
    until(lambda: person.running(job).keys() == ALL and person.step(job) > 0, "it trains")
    submitted, reached = slurm.run("squeue", "-h", "-o", "%i"), person.step(job)
    slurm.run("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    until(lambda: not person.running(job), "it makes room")
    until(lambda: not workers(list(slurm.nodes)), "and leaves nothing there")
    until(lambda: "is PENDING" in (person.job(job)["note"] or ""), "it says that it waits")
    assert person.job(job)["state"] == "starting"
    slurm.run("scontrol", "update", f"JobId={submitted.strip()}", "StartTime=now+3")  # not after Slurm's two minutes
    until(lambda: person.running(job).keys() == ALL, "it is there again")
    log = (person.directory(job) / "logs" / "learner.0.log").read_text()
    again = re.search(r"going on after (\d+)", log)
    assert again is not None
    assert int(again[1]) >= reached, "it has saved when it was asked to go"
    assert slurm.run("squeue", "-h", "-o", "%i") == submitted


@pytest.mark.long
@pytest.mark.timeout(900, func_only=True)
def test_when_the_learners_node_is_lost_the_job_begins_anew_and_goes_on_from_its_weights(
    slurm: Slurm, person: Person
) -> None:
    job = person.launch("slurm", "--gpus-per-node", "0", "--updates", "100000000", nodes=2)
    weights = person.directory(job) / "learner" / job / "weights.npz"
    until(lambda: person.running(job).keys() == ALL and weights.exists(), "it has saved something")
    submitted = slurm.run("squeue", "-h", "-o", "%i")
    slurm.kill_node(slurm.nodes[0])
    until(lambda: set(person.running(job).values()) == {"n2", "n3"}, "it runs on the other two nodes")
    assert "going on after" in (person.directory(job) / "logs" / "learner.0.log").read_text()
    assert slurm.run("squeue", "-h", "-o", "%i") == submitted


@pytest.mark.long
@pytest.mark.timeout(900, func_only=True)
def test_for_a_node_that_was_cut_off_another_one_is_taken_and_what_it_left_is_never_heard_again(
    slurm: Slurm, person: Person
) -> None:
    job = person.launch("slurm", "--gpus-per-node", "0", "--updates", "100000000", nodes=2)
    until(lambda: person.running(job).keys() == ALL, "it runs on two of three nodes")
    learner = slurm.nodes[0].pids_of("mine.learner")
    its = {name for name, node in person.running(job).items() if node == "n2"}
    slurm.nodes[1].cut()
    until(lambda: not its & person.running(job).keys(), "the cut node is missed")
    until(lambda: not slurm.nodes[1].pids_of("mine.actor"), "and has ended its actors, which hear nothing")
    until(lambda: person.running(job).keys() == ALL, "another node has its part")
    where = set(person.running(job).values())
    assert "n2" not in where
    slurm.nodes[1].heal()
    slurm.wait_for_idle(2)
    seen = person.step(job)
    until(lambda: person.step(job) > seen + 10, "it trains")
    assert set(person.running(job).values()) == where
    assert slurm.nodes[0].pids_of("mine.learner") == learner
    person.run("stop", job)
    until(lambda: not slurm.run("squeue", "-h"), "Slurm has no job of it, nor the further one")
    until(lambda: not workers(list(slurm.nodes)), "nothing is left on any node")
