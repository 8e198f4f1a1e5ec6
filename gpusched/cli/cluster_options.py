"""The options of a workload on a cluster."""

from typing import Final

from gpusched.cli.options import Option, Options
from gpusched.settings import ENGINES

__all__ = ["CLUSTER"]


def _complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


CLUSTER: Final[Options] = {
    "engine": Option(
        "What runs the processes: local (this host), slurm or ray. [default: that of the workload or the "
        "configuration, else local]",
        metavar="ENGINE",
        complete=_complete_engine,
    ),
    "nodes": Option("On a cluster: on how many nodes.", metavar="N", least=1, kind=int | None),
    "gpus_per_node": Option(
        "On a cluster: whole GPUs of each node. [default: on Slurm as many as each node with GPUs has]",
        metavar="K",
        least=0,
        most=64,
        kind=int | None,
    ),
    "cpus_per_node": Option(
        "On a cluster: CPUs of each node. [default: one for each of its processes]",
        metavar="C",
        least=1,
        most=4096,
        kind=int | None,
    ),
    "device_memory": Option(
        "On a cluster: the memory of one of its GPUs, by which processes are given to nodes. [default: 16GiB]",
        metavar="AMOUNT",
    ),
    "site": Option(
        "On Slurm: a further option for sbatch; may be given several times: --site=--partition=gpu",
        metavar="WORD",
        kind=list[str] | None,
    ),
    "address": Option("On Ray: where the cluster is. [default: $RAY_ADDRESS]", metavar="HOST:PORT"),
    "patience": Option(
        "On a cluster: a node that gets no message of the learner for this time ends its processes, which are "
        "started again, there or elsewhere. [default: 45s, or less, as Slurm has it]",
        metavar="SPAN",
    ),
}
