"""`launch --engine ray` on a real Ray of three nodes, each with its own network; the head is on the login host."""

import os
import re
import signal

import pytest

from tests.clusters.hosts import Node
from tests.clusters.person import Person
from tests.clusters.ray import RayCluster
from tests.clusters.test_slurm import ALL, secrets_in, words_of
from tests.patience import until
from tests.stand_in.library import StandIn

FOR_EVER = ("--updates", "100000000")


def ours(nodes: list[Node]) -> list[int]:
    """The processes of gpusched and of the workload on the nodes. Ray's own may have a path with that name."""
    return [pid for node in nodes for words in ("-m gpusched.", "-m workloads.") for pid in node.pids_of(words)]


def drivers(person: Person) -> list[int]:
    return [pid for pid in person.command.running() if b"gpusched.engines.ray.engine\0" in words_of(pid)]


def log_of(person: Person, job: str, name: str) -> str:
    return (person.directory(job) / "logs" / f"{name}.log").read_text()


def other_than(home: str, nodes: list[Node]) -> Node:
    """Return a node that has not the learner."""
    return next(node for node in nodes if node.name != home)


def mend(ray: RayCluster, node: Node) -> None:
    """Plug a node's cable in again, and start Ray there anew: it ends by itself once it hears that it was given up."""
    node.heal()
    ray.kill_node(node)
    ray.start_node(node)


@pytest.mark.slow
@pytest.mark.timeout(900, func_only=True)
def test_a_job_on_three_nodes_of_ray_outlives_a_node_that_is_killed_or_cut_and_its_driver(
    ray: RayCluster, person_with_ray: Person, stand_in: StandIn
) -> None:
    person, nodes = person_with_ray, list(ray.nodes)
    person.gives_devices(stand_in.host("gpus 4\nset * used 0\n").variables)
    job = person.launch("ray", "--gpus-per-node", "2", *FOR_EVER)
    until(lambda: person.running(job).keys() == ALL, "all nine run and feed the learner")
    assert set(person.running(job).values()) == {"n1", "n2", "n3"}
    told = person.job(job)["replicas"]
    assert {one["device_index"] for one in told} == {2, 3}, "Ray has handed over two of four"
    actor = next(one for one in told if one["name"] == "actor.7")
    assert f"CUDA_VISIBLE_DEVICES={actor['device_uuid']}\0".encode() in words_of(actor["pid"])

    weights = person.directory(job) / "learner" / job / "weights.npz"
    until(lambda: person.step(job) > 0 and weights.exists(), "it trains, and has saved")
    secrets, everything = secrets_in(person.directory(job)), b"".join(map(words_of, ours(nodes)))
    assert len(secrets) == 2, "its own, and one for the actors"
    assert b"gpusched.engines.cluster.node" in everything
    assert not [secret for secret in secrets if secret in everything]

    home = person.running(job)["learner.0"]
    dies = other_than(home, nodes)
    its = {name for name, node in person.running(job).items() if node == dies.name}
    ray.kill_node(dies)
    until(lambda: not its & person.running(job).keys(), "the node is missed")
    seen = person.step(job)
    until(lambda: person.step(job) > seen, "the others go on")
    ray.start_node(dies)
    until(lambda: person.running(job).keys() == ALL, "its actors are back")

    dies.cut()
    until(lambda: not its & person.running(job).keys(), "the cut node is missed")
    seen = person.step(job)
    until(lambda: person.step(job) > seen, "the others go on without it, too")
    until(lambda: not ours([dies]), "the node itself has ended its actors, which hear nothing")
    mend(ray, dies)
    until(lambda: person.running(job).keys() == ALL, "they are back")
    log = log_of(person, job, "ray.0")
    assert log.count(f"runs on {home},") == 1, "the learner's node went on all the time"
    assert re.search(rf"runs on {dies.name}, .* incarnation [2-9]$", log, re.MULTILINE)

    before = ours(nodes)
    os.kill(drivers(person)[0], signal.SIGKILL)
    until(lambda: not set(before) & set(ours(nodes)), "all have ended with the driver")
    begun = re.compile(r"^node (\d): runs on .* incarnation 1\d{4}$", re.MULTILINE)
    until(lambda: len(set(begun.findall(log_of(person, job, "ray.0")))) == 3, "another driver has begun all parts")
    until(lambda: person.running(job).keys() == ALL, "all are back")
    assert "going on after" in log_of(person, job, "learner.0")

    person.run("stop", job)
    assert person.job(job)["state"] == "cancelled"
    until(lambda: not ours(nodes), "nothing is left on any node")
    assert not drivers(person)
    assert not secrets_in(person.directory(job)) + secrets_in(ray.base)


@pytest.mark.long
@pytest.mark.timeout(900, func_only=True)
def test_where_rays_learner_is_killed_or_cut_off_all_begin_anew_and_with_the_head_the_job_is_over(
    ray: RayCluster, person_with_ray: Person
) -> None:
    person, nodes = person_with_ray, list(ray.nodes)
    job = person.launch("ray", "--gpus-per-node", "0", *FOR_EVER)
    weights = person.directory(job) / "learner" / job / "weights.npz"
    until(lambda: person.running(job).keys() == ALL and weights.exists(), "all nine run, and something is saved")

    def home() -> Node:
        return next(node for node in nodes if node.name == person.running(job)["learner.0"])

    host = home()
    ray.kill_node(host)
    until(lambda: "learner.0" not in person.running(job), "the learner is missed")
    ray.start_node(host)
    until(lambda: person.running(job).keys() == ALL, "all have begun anew")
    assert log_of(person, job, "learner.0").count("going on after") == 1

    host = home()
    host.cut()
    until(lambda: "learner.0" not in person.running(job), "the learner is missed")
    until(lambda: not ours([host]), "the learner's node has ended what hears nothing")
    mend(ray, host)
    until(lambda: person.running(job).keys() == ALL, "all have begun anew")
    assert log_of(person, job, "learner.0").count("going on after") == 2

    os.kill(home().pids_of("-m gpusched.engines.cluster.node")[0], signal.SIGTERM)
    until(lambda: log_of(person, job, "learner.0").count("going on after") == 3, "it begins anew, also after an order")
    until(lambda: person.running(job).keys() == ALL, "and so do those who heard that it was over")

    ray.kill_head()
    until(lambda: person.job(job)["state"] == "failed", "who has lost Ray has lost the job")
    until(lambda: not ours(nodes), "nothing is left on any node")
    assert not person.running(job)
