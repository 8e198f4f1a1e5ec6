"""The engine `slurm`, on the host that submits: `python -m gpusched.engines.slurm`, the one process of such a job here.

It submits the batch script, unless a process before it has done so, waits until Slurm says that the job is over, and
ends as it did. Who kills it is answered with another one, which finds the job by its name. What the job's nodes tell
lies in the job's directory, which they share (engines/slurm_head.py).
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched import contract
from gpusched.engines.attend import Requests, attend
from gpusched.engines.base import Seen
from gpusched.engines.slurm_commands import host_names, look_up, run, scancel, submit, without_slurm
from gpusched.engines.slurm_words import FORMAT, HeadOrder, batch_script, extra_name, job_name, places, seen
from gpusched.engines.told import Ledger
from gpusched.errors import GpuschedError, HostFault
from gpusched.files import replace_file
from gpusched.model.group import Group
from gpusched.supervisor.jobdir import JobDirectory, read_job
from gpusched.supervisor.nodes import tell_engine
from gpusched.supervisor.orders import StopOrder, give

__all__ = ["Slurm", "main"]

_LOOK_EVERY_S: Final = 1.0
_OBEYED_WITHIN_S: Final = 60.0
_OURS: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS")


class Slurm:
    """The job of Slurm that runs the `group` for the job in `directory`; see Engine."""

    def __init__(self, directory: JobDirectory, group: Group, environ: Mapping[str, str]) -> None:
        self._directory, self._group = directory, group
        self._environ = {
            name: value
            for name, value in without_slurm(environ).items()
            if name not in _OURS and not name.startswith(("GPUSCHED_", "TF_NUM_"))
        }
        self._token = directory.path / "slurm.token"
        self._name = job_name(_read_or_draw(self._token))
        self._id = ""
        self._places = ("", "")
        self._last = Seen(stage="waiting")

    def submit(self) -> None:
        """Submit it, unless Slurm has a job of its name. Raises UsageError for what Slurm refuses, HostFault."""
        found = look_up([f"--name={self._name}"], "%i")
        order = HeadOrder(group=self._group, job=self._directory.path.name, directory=str(self._directory.path))
        script = batch_script(order, self._name, str(self._directory.log("slurm")))
        self._id = found[-1].strip() if found else submit(script, self._environ)
        print(f"{'found' if found else 'submitted'} Slurm job {self._id}, {self._name}", flush=True)

    def look(self) -> Seen:
        """Return what Slurm says of it; while Slurm does not answer, what it said last."""
        try:
            lines = look_up([f"--jobs={self._id}"], FORMAT)
        except HostFault as error:
            return msgspec.structs.replace(self._last, words=f"{self._last.words}; {error.message}")
        gone = Seen(stage="lost", words=f"Slurm knows no job {self._id} any more")
        self._last = seen(lines[-1]) if lines else gone
        if lines and self._has_lost_its_script(*places(lines[-1])):
            self._last = self._queue_again()
        return self._last

    def _has_lost_its_script(self, nodes: str, batch: str) -> bool:
        """Return whether the job goes on without its first node: `--no-kill` lets it, with nobody left to end it."""
        if (nodes, batch) == self._places:
            return False
        names = host_names(nodes) if nodes else [batch]
        self._places = (nodes, batch)
        return batch not in names

    def _queue_again(self) -> Seen:
        """Have Slurm begin the job anew, at once and not after the two minutes that it would wait."""
        self._places = ("", "")
        try:
            run(["scontrol", "requeue", self._id])
            run(["scontrol", "update", f"JobId={self._id}", "StartTime=now"])
        except HostFault as error:
            return msgspec.structs.replace(self._last, words=f"its first node is lost; {error.message}")
        print("its first node is lost: it is queued again", flush=True)
        for number in range(len(self._group.nodes)):
            with Ledger(self._directory.path, number):
                pass  # whoever wrote there is gone, and its node's part with it
        return Seen(stage="waiting", words=f"Slurm job {self._id} has lost its first node and is queued again")

    def cancel(self, *, kill: bool) -> None:
        """Have its batch script end it in order, or Slurm at once if `kill` or if it has not begun."""
        gently = self._last.stage == "running" and not kill
        with suppress(HostFault):  # it is looked at again, and whoever wants an end asks again
            scancel(["--signal=TERM", "--batch", self._id] if gently else [self._id])

    def clear_up(self) -> None:
        """Take away what may still wait in Slurm's queue for it. A further attempt has a job of its own."""
        with suppress(HostFault):
            scancel([f"--name={extra_name(self._id)}"])
        with suppress(OSError):
            self._token.unlink()


def main() -> int:
    """Run the group of this job's settings to its end; see the module."""
    requests = Requests()
    try:
        directory = JobDirectory(contract.replica().run_dir)
        engine = Slurm(directory, contract.settings(Group), os.environ)
        engine.submit()
        ended = attend(engine, requests, _tell(directory), every_s=_LOOK_EVERY_S)
        engine.clear_up()
    except GpuschedError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if ended.stage == "cancelled" and not requests.count:
        _cancel_job(directory, requests)
    print(ended.words, flush=True)
    return 0 if ended.stage == "succeeded" else GpuschedError.exit_code


def _tell(directory: JobDirectory) -> Callable[[Seen], bool]:
    """Return what leaves what Slurm says, when that changes, where `status` finds it."""
    told = ""

    def tell(now: Seen) -> bool:
        nonlocal told
        if now.words != told:
            with suppress(OSError):
                tell_engine(directory.path, now.words)
            told = now.words
        return True

    return tell


def _cancel_job(directory: JobDirectory, requests: Requests) -> None:
    """Have this process's own supervisor call the job cancelled, as somebody did with it in Slurm."""
    with suppress(GpuschedError):
        give(read_job(directory.path), StopOrder(message="cancelled in Slurm (scancel)"))
        deadline = time.monotonic() + _OBEYED_WITHIN_S
        while not requests.count and time.monotonic() < deadline:
            time.sleep(0.05)


def _read_or_draw(path: Path) -> str:
    """Return what the job is found by, the same in each process of it. Raises HostFault."""
    try:
        if not path.exists():
            replace_file(path, secrets.token_hex(8).encode())
        return path.read_text()
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None


if __name__ == "__main__":
    sys.exit(main())
