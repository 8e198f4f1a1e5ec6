"""What the engine `slurm` registers: its options, and what is found out before anything is submitted."""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpusched.engines.registry import ClusterEngine, EngineOption
from gpusched.errors import UsageError
from gpusched.model.cluster_job import ClusterJob, Own

__all__ = ["ENGINE"]

_OURS: Final = (
    *("--job-name", "-J", "--array", "-a", "--nodes", "-N", "--ntasks", "-n", "--output", "-o", "--open-mode"),
    *("--no-requeue", "--gres", "--cpus-per-task", "-c", "--input", "--wrap"),
)
"""What a batch script needs as it is: with others, two learners could share a directory."""
_SHORTER: Final = 0.9
"""What part of Slurm's patience a node has by default, where that is shorter than the usual one."""


def _checked(own: Own, _: Mapping[str, str]) -> Own:
    for word in own.get("site", ()):
        if not word.startswith("-") or any(map(str.isspace, word.partition("=")[0])):
            raise UsageError(f"--site={word}: is no option of sbatch", "write it as one word: --site=--partition=gpu")
        if word.startswith(_OURS) and not word.startswith("--gres-flags"):
            raise UsageError(f"--site={word}: gpusched sets that itself", "leave it out, or give launch's own option")
    return own


def _gpus(own: Own) -> int:
    """Return how many GPUs each node has that has any. Raises HostFault."""
    from gpusched.engines.slurm.commands import gpus_of_site
    from gpusched.engines.slurm.script import partition_of, read_gpus

    return read_gpus(gpus_of_site(partition_of(own.get("site", ()))))


def _preflight(job: ClusterJob, patience: str | None) -> ClusterJob:
    """A node must give up its learner before Slurm gives up the node."""
    from gpusched.engines.slurm.commands import gives_up_after_s, require_commands

    require_commands()
    slurms_s = gives_up_after_s()
    if slurms_s > job.patience_s:
        return job
    if patience is not None:
        message = f"--patience {patience}: Slurm gives up a node after {slurms_s:.0f} s, its actors still there"
        raise UsageError(message, f"give less than --patience {slurms_s:.0f}s, or leave it out")
    return msgspec.structs.replace(job, patience_s=max(1, int(slurms_s * _SHORTER)))


def _script(job: ClusterJob, name: str) -> str:
    from gpusched.engines.slurm.script import HeadOrder, batch_script

    return batch_script(HeadOrder(group=job), f"gpusched-{name}", "slurm-%j.log")


ENGINE: Final = ClusterEngine(
    module="gpusched.engines.slurm.engine",
    options={
        "site": EngineOption(
            help="On Slurm: a further option for sbatch; may be given several times: --site=--partition=gpu",
            metavar="WORD",
            elsewhere="is for sbatch, and {engine} has none",
            repeats=True,
        )
    },
    checked=_checked,
    gpus=_gpus,
    preflight=_preflight,
    script=_script,
    handed=("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"),  # CUDA counts those that a process may see, Slurm all of a node
    handed_hint="ask who runs the cluster: its GPUs must be a generic resource (gres) called gpu",
)
