"""A workload that is spread over the nodes of a cluster, as text."""

from gpusched.model.cluster_job import ClusterJob, NodeShare
from gpusched.units import number

__all__ = ["layout_text"]


def layout_text(job: ClusterJob) -> str:
    """Return what will run where: `9 processes on 2 nodes of slurm, 2 GPUs each: learner.0 actor.0-3, actor.4-7`."""
    total = sum(job.counts.values())
    gpus = f", {number(job.gpus, 'GPU')} each" if job.gpus else ""
    nodes = number(len(job.nodes), "node")
    return f"{total} processes on {nodes} of {job.engine}{gpus}: {', '.join(map(_share_text, job.nodes))}"


def _share_text(share: NodeShare) -> str:
    return " ".join(_range_text(role, share.first[role], count) for role, count in share.counts.items() if count)


def _range_text(role: str, first: int, count: int) -> str:
    return f"{role}.{first}" if count == 1 else f"{role}.{first}-{first + count - 1}"
