"""One node of a group on Slurm, as the batch script's node sees it: `python -m gpusched.engines.slurm_step`.

It has srun start the node's part: on that node of the job, or, when the job has lost it, in a further job, on whatever
node there is. The key goes to it on its standard input.
"""

import os
import signal
import subprocess
import sys

import msgspec

from gpusched.engines.slurm_commands import host_names, look_up, without_slurm
from gpusched.engines.slurm_words import inside, outside
from gpusched.engines.steps import end_like, my_order
from gpusched.errors import GpuschedError
from gpusched.model.group import NodeOrder

__all__ = ["main"]


def main() -> None:
    """Have the node do its part, and end like it."""
    try:
        order = my_order()
        words, env = _command(order, os.environ["SLURM_JOB_ID"])
    except GpuschedError as error:
        sys.exit(str(error))
    process = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        process.stdin.write(msgspec.json.encode(order))
        process.stdin.close()
    except BrokenPipeError:  # srun has ended, and said why
        pass
    end_like(order, process.stdout)


def _command(order: NodeOrder, job_id: str) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment of srun. Raises HostFault."""
    first = host_names(os.environ["SLURM_JOB_NODELIST"])
    left = {name for line in look_up([f"--jobs={job_id}"], "%N") for name in host_names(line.strip())}
    node = first[order.number]
    if node in left:
        return inside(order.group, job_id, node), dict(os.environ)
    print(f"{node} is no node of job {job_id} any more: another is asked for", file=sys.stderr, flush=True)
    return outside(order.group, job_id), without_slurm(os.environ)


if __name__ == "__main__":
    main()
