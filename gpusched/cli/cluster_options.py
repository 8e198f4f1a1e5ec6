"""The options of a workload on a cluster."""

from typing import Final

from gpusched.api.clusters import engines
from gpusched.cli.options import Option, Options
from gpusched.settings import ENGINES

__all__ = ["CLUSTER", "OWN"]


def _complete_engine(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


OWN: Final[Options] = {
    name: Option(option.help, metavar=option.metavar, kind=(list[str] if option.repeats else str) | None)
    for options in engines().values()
    for name, option in options.items()
}
"""Those of the engines, as they have registered them."""

CLUSTER: Final[Options] = {
    "engine": Option(
        f"What runs the processes: local (this host), {' or '.join(list(ENGINES)[1:])}. [default: that of the workload "
        "or the configuration, else local]",
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
    **OWN,
    "patience": Option(
        "On a cluster: a node that gets no message of the learner for this time ends its processes, which are "
        "started again, there or elsewhere. [default: 45s, or less, as Slurm has it]",
        metavar="SPAN",
    ),
}
