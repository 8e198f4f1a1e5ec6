"""Texts for Slurm and from it: the batch script of a group, commands, and the state of a job. Pure.

Only what Slurm has had for long: `squeue -h -o`, since its JSON changes from release to release (`job_state` became a
list in 23.11's v0.0.40), and no shards, which few sites have.
"""

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpusched.engines.base import Seen
from gpusched.interpreter import module_options
from gpusched.model.cluster_job import ClusterJob
from gpusched.model.job import Text
from gpusched.model.status import JobState

__all__ = [
    "FORMAT",
    "STOP_ASKED",
    "HeadOrder",
    "batch_script",
    "extra_name",
    "has_to_make_room",
    "inside",
    "is_nearly_over",
    "is_there",
    "job_name",
    "outside",
    "partition_of",
    "places",
    "read_gpus",
    "seen",
]

FORMAT: Final = "%i|%T|%r|%N|%B"
"""Of squeue: id, state, reason, nodes, the node of the batch script (squeue(1))."""

STOP_ASKED: Final = "stop-asked"
"""A file in the job's directory: it is gpusched that ends the job, and not Slurm that needs its place."""

_GRACE_S: Final = 60
_END: Final = "GPUSCHED_ORDER"
_STATES: Final[dict[str, JobState]] = {
    "PENDING": JobState.QUEUED,
    "CONFIGURING": JobState.QUEUED,
    "REQUEUED": JobState.QUEUED,
    "REQUEUE_FED": JobState.QUEUED,
    "REQUEUE_HOLD": JobState.QUEUED,
    "SPECIAL_EXIT": JobState.QUEUED,
    "RESV_DEL_HOLD": JobState.QUEUED,
    "COMPLETED": JobState.SUCCEEDED,
    "CANCELLED": JobState.CANCELLED,
    "REVOKED": JobState.CANCELLED,
    "BOOT_FAIL": JobState.FAILED,
    "DEADLINE": JobState.FAILED,
    "FAILED": JobState.FAILED,
    "NODE_FAIL": JobState.FAILED,
    "OUT_OF_MEMORY": JobState.FAILED,
    "PREEMPTED": JobState.FAILED,
    "TIMEOUT": JobState.FAILED,
}
"""The states of squeue(1), "JOB STATE CODES"; all others are of a job that runs."""


_PARTITION: Final = ("--partition=", "-p")
_WHERE: Final = (
    *(*_PARTITION, "--account=", "-A", "--clusters=", "-M", "--constraint=", "-C", "--exclude=", "-x", "--licenses="),
    *("-L", "--mem=", "--mem-per-cpu=", "--mem-per-gpu=", "--nice", "--qos=", "-q", "--reservation=", "--time=", "-t"),
    "--wckey=",
)
"""Of sbatch's options those that srun knows, too, and that restrict where a job may run, and for whose account."""


class HeadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order for the batch script: the group, and for which `job` in which `directory`; None: one of its own.

    `kept`: a job that is lost, with the host that submitted it, is found again: a daemon keeps it.
    """

    group: ClusterJob
    job: Text | None = None
    directory: Text | None = None
    kept: bool = False


def job_name(token: str) -> str:
    """Return the name by which Slurm knows the job of that token."""
    return f"gpusched-{token}"


def extra_name(job_id: str) -> str:
    """Return the name of the further jobs that stand in for nodes which the job `job_id` has lost."""
    return f"gpusched-extra-{job_id}"


def batch_script(order: HeadOrder, name: str, output: str) -> str:
    """Return what sbatch takes: a script that can be submitted by hand, too. It holds no key.

    `--no-kill`: the job outlives its nodes. `--requeue`: it comes again after its first node was lost, or it had to
    make room. The signal comes a minute before the time is up, so that the learner can save.
    """
    group = order.group
    options = [
        f"--job-name={name}",
        f"--nodes={len(group.nodes)}",
        "--ntasks-per-node=1",
        *_resources(group),
        "--no-kill",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:TERM@{_GRACE_S}",
        f"--output={output}",
        *group.own.get("site", ()),
    ]
    text = msgspec.json.encode(order).decode()
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {_one_word(word)}" for word in options),
            f"cd -- {shlex.quote(group.cwd)} || exit 5",
            f"exec {shlex.join([group.python, *module_options(group.cwd)])} gpusched.engines.slurm.batch <<'{_END}'",
            text,
            _END,
            "",
        ]
    )


def inside(group: ClusterJob, job_id: str, node: str) -> list[str]:
    """Return what starts a node's part on `node` of the job's own."""
    return ["srun", f"--jobid={job_id}", f"--nodelist={node}", "--overlap", *_one_task(group)]


def outside(group: ClusterJob, job_id: str) -> list[str]:
    """Return what starts a node's part on any node, once there is one: a separate job.

    Of the site's options it has those for where a job may run, and for whose account. srun refuses some of sbatch's,
    and would wait for others, such as --begin, that are long fulfilled.
    """
    where = [word for word in group.own.get("site", ()) if word.startswith(_WHERE)]
    return ["srun", f"--job-name={extra_name(job_id)}", *where, *_one_task(group)]


def partition_of(site: Sequence[str]) -> list[str]:
    """Return those of the site's words that name partitions: sinfo takes them, too."""
    return [word for word in site if word.startswith(_PARTITION)]


def seen(line: str) -> Seen:
    """Return a job's state from a line of squeue in FORMAT."""
    job, state, reason, nodes, _ = _fields(line)
    ours = _STATES.get(state, JobState.RUNNING)
    where = f" on {nodes}" if nodes and ours is JobState.RUNNING else ""
    why = f" ({reason})" if reason not in ("", "None") else ""
    return Seen(state=ours, message=f"Slurm job {job} is {state}{where}{why}")


def is_there(line: str) -> bool:
    """Return whether a job has its place, of a line of squeue in FORMAT: Slurm has not begun to end it."""
    return _fields(line)[1] in ("RUNNING", "SUSPENDED")


def has_to_make_room(shown: Mapping[str, str]) -> bool:
    """Return whether Slurm wants the place of a job that runs for another one, of what scontrol shows of it."""
    return shown.get("PreemptTime", "None") not in ("None", "Unknown")


def is_nearly_over(shown: Mapping[str, str], now: datetime) -> bool:
    """Return whether its time limit is why a job was asked to end, as scontrol shows it; `now` in local time."""
    try:
        left = datetime.fromisoformat(shown.get("EndTime", "")) - now
    except ValueError:  # it has no limit
        return False
    return left.total_seconds() < 2 * _GRACE_S


def places(line: str) -> tuple[str, str]:
    """Return the nodes of a job that runs, and which of them has the batch script, of a line of squeue in FORMAT."""
    _, state, _, nodes, batch = _fields(line)
    return (nodes, batch) if state == "RUNNING" else ("", "")


def read_gpus(gres: Sequence[str]) -> int:
    """Return the least number of GPUs that a node with some has, of lines as of `sinfo -h -o %G`; 0 if none has any."""
    found = [sum(map(_gpus, line.split(","))) for line in gres]
    return min([count for count in found if count], default=0)


def _fields(line: str) -> list[str]:
    return [*line.strip().split("|", 4), "", "", "", "", ""][:5]


def _gpus(word: str) -> int:
    kind, _, rest = word.partition("(")[0].partition(":")
    count = rest.rpartition(":")[2]
    return int(count) if kind.strip() == "gpu" and count.isdecimal() else 0


def _one_task(group: ClusterJob) -> list[str]:
    """`--no-kill` and the next two: what happens to one node is nothing to the others."""
    return [
        "--nodes=1",
        "--ntasks=1",
        *_resources(group),
        "--no-kill",
        "--kill-on-bad-exit=0",
        "--wait=0",
        "--unbuffered",
        "--mpi=none",
        "--quiet",
        group.python,
        *module_options(group.cwd),
        "gpusched.engines.cluster.node",
    ]


def _resources(group: ClusterJob) -> list[str]:
    gpus = [f"--gres=gpu:{group.gpus}"] if group.gpus else []
    return [*gpus, *([f"--cpus-per-task={group.cpus}"] if group.cpus else [])]


def _one_word(word: str) -> str:
    """Return a word as sbatch reads it in a script: it splits at blanks, and takes quotes (sbatch(1))."""
    return f'"{word}"' if any(map(str.isspace, word)) else word
