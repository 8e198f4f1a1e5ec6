"""One node of a group on Slurm, as the batch script's node sees it: `python -m gpusched.engines.slurm.node_task`.

It has srun start the node's part: on that node of the job, or, when the job has lost it, in a further job, on whatever
node there is. The key goes to it on its standard input.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Event
from typing import Final

import msgspec

from gpusched.engines.cluster.node_tasks import end_like, my_order
from gpusched.engines.slurm.commands import host_names, nodes_of_job, patiently, squeue, without_slurm
from gpusched.engines.slurm.script import inside, outside
from gpusched.errors import GpuschedError
from gpusched.model.cluster_job import NodeOrder

__all__ = ["main"]

_PATIENCE_S: Final = 10.0


def main() -> None:
    """Have the node do its part, and end like it."""
    try:
        order = my_order()
        argv, env = _command(order, os.environ["SLURM_JOB_ID"])
    except (GpuschedError, OSError) as error:
        sys.exit(str(error))
    # In a new session, because a SIGTERM for this process is one for its group, and srun kills all at its first.
    process = subprocess.Popen(argv, env=env, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdin is None or process.stdout is None:  # they are pipes
        return
    node, asked = process.stdin.fileno(), Event()

    def stop(*_: object) -> None:
        asked.set()
        _write(node, b"stop\n")

    signal.signal(signal.SIGTERM, stop)
    _write(node, msgspec.json.encode(order) + b"\n")
    end_like(order, process.stdout.fileno(), lambda: _end(process), asked.is_set)


def _names(lines: list[str]) -> set[str]:
    return {name for line in lines for name in host_names(line.strip())}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End srun, which has Slurm end what it started, and a job that it may wait for."""
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write(node: int, line: bytes) -> None:
    """Write to the node. A srun that has ended prints why."""
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(node, line) :]


def _command(order: NodeOrder, job_id: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line and the environment of srun. Raises HostFault."""
    left = patiently(lambda: _names(squeue([f"--jobs={job_id}"], "%N")))
    node = nodes_of_job(os.environ)[order.number]
    if node in left:
        return inside(order.group, job_id, node), dict(os.environ)
    print(f"{node} is no node of job {job_id} any more: another is asked for", file=sys.stderr, flush=True)
    return outside(order.group, job_id), without_slurm(os.environ)


if __name__ == "__main__":
    main()
