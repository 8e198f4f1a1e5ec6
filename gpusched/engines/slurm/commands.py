"""What Slurm is asked: its commands as functions, whose errors end here."""

import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from gpusched.engines.slurm.script import extra_name
from gpusched.errors import HostFault, UsageError

__all__ = [
    "address_of",
    "clear_extras",
    "gives_up_after_s",
    "gpus_of_site",
    "host_names",
    "nodes_of_job",
    "patiently",
    "require_commands",
    "run",
    "scancel",
    "show_job",
    "squeue",
    "submit",
    "without_slurm",
]

_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 2.0
_NOT_NOW: Final = ("timed out", "Unable to contact", "Connection refused", "temporarily")
"""Messages of sbatch about a controller that may have taken the job all the same, or will later."""
_COMMANDS: Final = ("sbatch", "squeue", "scancel", "scontrol")
_HINT: Final = "run it where sbatch works, such as a login node of the cluster"


Answer = TypeVar("Answer")


class Unanswered(HostFault):
    """Slurm did not answer, or could not do it now."""


def patiently(ask: Callable[[], Answer], patience_s: float = 120.0) -> Answer:
    """Return what `ask` does, asked again for a while where Slurm does not answer. Raises as it does."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except Unanswered:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def run(argv: Sequence[str], input_text: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Return what a command of Slurm prints. Raises HostFault where it is not to be had or fails."""
    try:
        done = subprocess.run(
            argv, input=input_text, env=env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise HostFault(f"there is no {argv[0]} on this host", _HINT) from None
    except OSError as error:
        raise HostFault(f"{argv[0]}: {error.strerror}", _HINT) from None
    except subprocess.TimeoutExpired:
        raise Unanswered(
            f"{argv[0]} did not answer within {_PATIENCE_S:.0f} s", "is slurmctld well? scontrol ping"
        ) from None
    if done.returncode:
        problem = "; ".join(done.stderr.split("\n")).strip("; ") or f"exit code {done.returncode}"
        problem = problem if problem.startswith(argv[0]) else f"{argv[0]}: {problem}"
        raise Unanswered(problem, "see that Slurm is well: scontrol ping, sinfo")
    return done.stdout


def submit(script: str, env: Mapping[str, str]) -> str:
    """Submit a batch script and return the job's id. Raises UsageError for one that is refused, HostFault."""
    try:
        return run(["sbatch", "--parsable"], script, env).strip().partition(";")[0]
    except HostFault as error:
        if "sbatch: error: " in error.message and not any(word in error.message for word in _NOT_NOW):
            raise UsageError(
                error.message, "see what the site takes: sinfo; --site gives sbatch more options"
            ) from None
        raise


def squeue(which: Sequence[str], form: str) -> list[str]:
    """Return squeue's lines of the jobs that `which` names, also of those that ended lately. Raises HostFault."""
    try:
        return run(["squeue", "-h", "--me", "-t", "all", *which, "-o", form]).splitlines()
    except HostFault as error:
        if "Invalid job id" in error.message:  # Slurm has forgotten it
            return []
        raise


def scancel(options: Sequence[str]) -> None:
    """Cancel or signal jobs; that there is none to cancel any more is no fault. Raises HostFault."""
    try:
        run(["scancel", "--quiet", *options])
    except HostFault as error:
        if "Invalid job id" not in error.message and "already completing" not in error.message:
            raise


def clear_extras(job_id: str) -> None:
    """Cancel the jobs that stand in for nodes which the job `job_id` has lost."""
    with suppress(HostFault):
        scancel([f"--name={extra_name(job_id)}"])


def show_job(job_id: str) -> dict[str, str]:
    """Return what scontrol shows of a job, by name. Raises HostFault."""
    return dict(word.partition("=")[::2] for word in run(["scontrol", "-o", "show", "job", job_id]).split())


def gives_up_after_s() -> float:
    """Return for how long Slurm waits for a silent node. Raises HostFault."""
    found = re.search(r"^SlurmdTimeout\s*=\s*(\d+) sec", run(["scontrol", "show", "config"]), re.MULTILINE)
    return float(found[1]) if found and found[1] != "0" else math.inf


def host_names(nodes: str) -> list[str]:
    """Return the names in a list such as `n[1-3]`. Raises HostFault."""
    return run(["scontrol", "show", "hostnames", nodes]).split() if nodes else []


def nodes_of_job(environ: Mapping[str, str]) -> list[str]:
    """Return the nodes that the present job began with, the one of its batch script first. Raises HostFault."""
    first = environ["SLURMD_NODENAME"]
    names = patiently(lambda: host_names(environ["SLURM_JOB_NODELIST"]))
    return [first, *(name for name in names if name != first)]


def address_of(node: str) -> str:
    """Return the address at which Slurm reaches a node; its name where Slurm knows no other. Raises HostFault."""
    fields = dict(word.partition("=")[::2] for word in run(["scontrol", "-o", "show", "node", node]).split())
    return fields.get("NodeAddr") or node


def gpus_of_site(which: Sequence[str]) -> list[str]:
    """Return the generic resources of the nodes that `which` names, a line for each kind. Raises HostFault."""
    return run(["sinfo", "-h", *which, "-o", "%G"]).splitlines()


def require_commands() -> None:
    """Raise HostFault where Slurm cannot be had from this host."""
    for name in _COMMANDS:
        if shutil.which(name) is None:
            raise HostFault(f"there is no {name} on this host", _HINT)


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which sbatch and srun are no part of the job that they are called in."""
    return {
        name: value
        for name, value in environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SBATCH_", "SRUN_"))
    }
