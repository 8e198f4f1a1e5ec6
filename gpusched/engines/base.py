"""What an engine is: it starts the processes of one job, reports their state, and ends them."""

from typing import Protocol

import msgspec

from gpusched.errors import GpuschedError
from gpusched.model.status import JOB_TERMINAL, JobState

__all__ = ["Engine", "Seen"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job's processes as their engine sees it."""

    state: JobState
    message: str = ""
    """What the engine adds, for people."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in JOB_TERMINAL

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends as the job did."""
        return 0 if self.state is JobState.SUCCEEDED else GpuschedError.exit_code


class Engine(Protocol):
    """One job's processes, wherever they run. An engine knows its job; what follows raises HostFault or UsageError.

    The logs of the replicas lie in the job's directory whatever the engine, and so does what is known of each.
    """

    def submit(self) -> None:
        """Have the processes started. If a submitter died before the cluster's answer, it is not done twice."""
        ...

    def poll(self) -> Seen:
        """Return the state of the processes."""
        ...

    def cancel(self, *, kill: bool) -> bool:
        """Ask for their end, within their grace, or at once if `kill`; return whether the order could be sent.

        It does not wait, and may be repeated.
        """
        ...
