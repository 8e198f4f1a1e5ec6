"""What is written is what Kubernetes and Compose have published that they take."""

import copy
from collections.abc import Callable
from typing import Any, get_args

import pytest

from gpusched.export import ShareResource, compose, kubernetes
from tests.export.exporting import complaints, exported, only

MACHINES = ("p3.8xlarge", "1x80GiB+2x24GiB", "cpu")


@pytest.mark.parametrize("share", get_args(ShareResource))
@pytest.mark.parametrize("machine", MACHINES)
def test_manifests_for_kubernetes_are_what_its_schema_takes(machine: str, share: ShareResource) -> None:
    documents = kubernetes(exported(machine=machine, procs="12"), share, None).documents

    assert {document["kind"] for document in documents} == {"Service", "PersistentVolumeClaim", "Job"}
    assert [complaints(document) for document in documents] == [[]] * len(documents)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_compose_file_is_what_the_specification_takes(machine: str) -> None:
    [document] = compose(exported(machine=machine, procs="12")).documents

    assert complaints(document) == []


def _pod(job: Any) -> Any:
    return job["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda job: job["spec"].pop("template"), "'template' is a required property"),
        (lambda job: job["spec"].update(completions="three"), "'three' is not of type 'integer', 'null'"),
        (lambda job: job["spec"].update(completion="Indexed"), "'completion' was unexpected"),
        (lambda job: _pod(job)["containers"][0].pop("name"), "'name' is a required property"),
        (lambda job: _pod(job)["containers"][0]["env"][0].update(value=7), "7 is not of type 'string', 'null'"),
        (lambda job: _pod(job)["volumes"][1]["secret"].update(secret="x"), "'secret' was unexpected"),
    ],
)
def test_the_schema_of_kubernetes_tells_what_is_broken(broken: Callable[[Any], object], told: str) -> None:
    [job, *_] = only(kubernetes(exported(machine="cpu", procs="1"), "none", None).documents, "Job")
    broken(job)

    assert told in " ".join(complaints(job))


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda learner: learner.update(comand=["x"]), "'comand' was unexpected"),
        (lambda learner: learner["environment"].update(X=["x"]), "environment"),
        (lambda learner: learner.update(init="perhaps soon", image=3), "3 is not of type 'string'"),
        (
            lambda learner: learner["deploy"]["resources"]["reservations"]["devices"][0].pop("capabilities"),
            "capabilities",
        ),
    ],
)
def test_the_schema_of_compose_tells_what_is_broken(broken: Callable[[Any], object], told: str) -> None:
    [document] = compose(exported(machine="2x16GiB", procs="1")).documents
    document = copy.deepcopy(document)
    broken(document["services"]["learner"])  # type: ignore[index]

    assert told in " ".join(complaints(document))
