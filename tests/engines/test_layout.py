"""Which node gets which replicas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpusched.engines.cluster.layout import lay_out
from gpusched.errors import NeverFits, UsageError
from gpusched.model.cluster_job import NodeShare
from gpusched.model.plan import Request
from gpusched.planner import Rules, request_for
from tests.engines.groups import a_workload

GIB16 = 16 * 1024


def spread(request: Request, nodes: int, gpus: int = 0) -> list[dict[str, int]]:
    return [share.counts for share in lay_out(request, "learner", nodes, gpus, GIB16, Rules())]


def test_without_devices_every_node_has_as_many_processes_as_can_be() -> None:
    counts = spread(request_for(a_workload(24)), 3)
    assert sorted(sum(node.values()) for node in counts) == [8, 8, 9]
    assert counts[0]["learner"] == 1


def test_with_devices_nodes_get_what_the_planner_gives_all_their_devices_together() -> None:
    request = request_for(a_workload(32, memory=True))
    assert spread(request, 4, gpus=1) == [
        {"learner": 1, "actor": 2},
        {"learner": 0, "actor": 10},
        {"learner": 0, "actor": 10},
        {"learner": 0, "actor": 10},
    ]


@given(actors=st.integers(1, 60), nodes=st.integers(1, 6), gpus=st.integers(0, 3))
def test_each_replica_is_on_one_node_and_ranks_go_on_from_node_to_node(actors: int, nodes: int, gpus: int) -> None:
    request = request_for(a_workload(actors, memory=True))
    try:
        shares = lay_out(request, "learner", nodes, gpus, GIB16, Rules())
    except (NeverFits, UsageError):
        return
    assert len(shares) == nodes
    assert shares[0].counts["learner"] == 1
    assert ranks(shares, "actor") == list(range(actors))
    assert ranks(shares, "learner") == [0]


def ranks(shares: tuple[NodeShare, ...], role: str) -> list[int]:
    return [share.first[role] + number for share in shares for number in range(share.counts[role])]


def test_more_nodes_than_processes_are_refused() -> None:
    with pytest.raises(UsageError, match="leave some without any"):
        spread(request_for(a_workload(2)), 4)


def test_what_never_fits_is_told_before_anything_is_submitted() -> None:
    with pytest.raises(NeverFits, match=r"on 2 nodes with 1 GPU of 16\.0 GiB each: .* can never fit"):
        spread(request_for(a_workload(500, memory=True)), 2, gpus=1)


def test_whole_devices_are_those_of_one_node() -> None:
    workload = a_workload(1, memory=True)
    learner = replace(workload.roles[0], memory=None, devices="all")
    request = request_for(replace(workload, roles=(learner, workload.roles[1])))
    assert spread(request, 1, gpus=4) == [{"learner": 1, "actor": 1}]
    with pytest.raises(UsageError, match="role learner asks for whole devices"):
        spread(request, 2, gpus=4)
