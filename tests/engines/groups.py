"""Groups to be spread, as launch would make them."""

import sys
from pathlib import Path

from gpusched.model.cluster_job import ClusterJob, NodeShare
from gpusched.model.workload import Memory, Restart, Role, Workload

__all__ = ["a_group", "a_workload"]

CHILD = Path(__file__).parents[1] / "cli" / "toys" / "feeding.py"


def a_workload(actors: int = 8, *, memory: bool = False, leader: str = "learner") -> Workload:
    needs = (Memory(min_mib=2048, share=7500), Memory(min_mib=512)) if memory else (None, None)
    command = ("{python}", str(CHILD))
    return Workload(
        name="toy",
        roles=(
            Role(name="learner", command=command, memory=needs[0]),
            Role(name="actor", command=command, count=actors, memory=needs[1], restart=Restart(max=5)),
        ),
        leader=leader,
        stop_grace_s=5,
    )


def a_group(*nodes: NodeShare, site: tuple[str, ...] = (), gpus: int = 0, cwd: str = "/") -> ClusterJob:
    shares = nodes or (NodeShare(counts={"learner": 1, "actor": 8}, first={"learner": 0, "actor": 0}),)
    return ClusterJob(
        engine="slurm",
        workload=a_workload(),
        options="{}",
        nodes=shares,
        gpus=gpus,
        own={"site": site},
        patience_s=5,
        python=sys.executable,
        cwd=cwd,
    )
