"""What a group needs of Ray, and when that is refused, without any Ray."""

from typing import Any

import msgspec
import pytest

from gpusched.engines.ray.requirements import needs_of, needs_text, require_nodes, require_secret
from gpusched.errors import HostFault, NeverFits
from gpusched.model.cluster_job import ClusterJob, NodeShare
from tests.engines.groups import a_group

ONE = NodeShare(counts={"learner": 0, "actor": 1}, first={"learner": 0, "actor": 0})


def on_two_nodes(gpus: int, cpus: int = 4) -> ClusterJob:
    return msgspec.structs.replace(a_group(ONE, ONE, gpus=gpus), engine="ray", cpus=cpus)


def a_node(cpus: float, gpus: float = 0.0, *, alive: bool = True) -> dict[str, Any]:
    """One of ray.nodes(), which names no resource of which a node has none."""
    return {"Alive": alive, "Resources": {"CPU": cpus} | ({"GPU": gpus} if gpus else {})}


def test_a_bundle_is_what_one_node_takes() -> None:
    assert needs_of(on_two_nodes(gpus=2)) == {"CPU": 4.0, "GPU": 2.0}
    assert needs_of(on_two_nodes(gpus=0)) == {"CPU": 4.0}
    assert needs_text(on_two_nodes(gpus=2)) == "2 nodes, each with 4 CPUs and 2 GPUs of Ray"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([a_node(4, 2), a_node(8, 4)], None),
        ([a_node(4, 2), a_node(8, 1)], "Ray has 2 nodes, and 1 of them could take a part"),
        ([a_node(4, 2), a_node(2, 2)], "Ray has 2 nodes, and 1 of them"),
        ([a_node(8), a_node(8)], "Ray has 2 nodes, and 0 of them"),
        ([a_node(4, 2), a_node(4, 2, alive=False)], "Ray has 1 node, and 1 of them"),
        ([a_node(64, 8)], "this needs 2 nodes, each with 4 CPUs and 2 GPUs of Ray"),
    ],
)
def test_what_would_wait_for_ever_is_refused_with_what_there_is(nodes: list[dict[str, Any]], said: str | None) -> None:
    if said is None:
        require_nodes(on_two_nodes(gpus=2), nodes)
        return
    with pytest.raises(NeverFits, match=said):
        require_nodes(on_two_nodes(gpus=2), nodes)


@pytest.mark.parametrize(("asks", "address"), [(True, "10.0.0.2"), (False, "10.0.0.1"), (True, "10.0.0.1")])
def test_keys_go_to_this_host_and_to_where_ray_asks_for_a_token(*, asks: bool, address: str) -> None:
    require_secret("n2", address, "10.0.0.1", asks_for_token=asks)


def test_keys_go_to_no_other_host_where_ray_lets_everybody_in() -> None:
    with pytest.raises(HostFault, match="Ray on n2 asks for no token"):
        require_secret("n2", "10.0.0.2", "10.0.0.1", asks_for_token=False)
