"""What an engine is: it starts the processes of one job, says how they are, and ends them."""

from typing import Final, Literal, Protocol

import msgspec

__all__ = ["LOCAL", "Engine", "Seen", "Stage"]

LOCAL: Final = "local"

Stage = Literal["waiting", "running", "succeeded", "failed", "cancelled", "lost"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes of a job are as their engine sees it. `words`: what it says beside that, for people."""

    stage: Stage
    message: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.stage not in ("waiting", "running")


class Engine(Protocol):
    """One job's processes, wherever they run. An engine knows its job; what follows raises HostFault or UsageError.

    The logs of the replicas lie in the job's directory whatever the engine, and so does what is known of each.
    """

    def submit(self) -> None:
        """Have the processes started. Who submitted to a cluster may have died before it knew: it is not done twice."""
        ...

    def poll(self) -> Seen:
        """Return how they are."""
        ...

    def cancel(self, *, kill: bool) -> bool:
        """Have them ended, within their grace, or at once if `kill`; return whether that could be said.

        It returns at once, and harms nothing twice.
        """
        ...
