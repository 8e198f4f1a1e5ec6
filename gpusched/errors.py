"""The one error tree of gpusched, and the exit code that each branch means to a shell.

It owns what an error *is*; it must not know where errors come from. Every other module maps foreign errors
(pynvml, zmq, OSError, tomllib) to one of these classes where they enter.

    GpuschedError                 1
    ├── UsageError                2   wrong input: an option, a number, a name
    │   ├── WorkloadError         2   wrong workload file
    │   ├── NoProgram           127   the command of `run` is no program, as in a shell
    │   └── NotExecutable       126   it is a file that cannot be executed, as in a shell
    ├── DoesNotFit                3
    │   ├── NeverFits             3   not even on an idle host
    │   └── NotNow                3   it would fit if leases or foreign memory went away
    ├── NotFound                  4   no such job
    │   └── NoDaemon              4   no daemon, one of another version, or one that does not answer
    ├── HostFault                 5   driver, permissions, a missing package
    │   └── StillRuns             5   an earlier attempt of a job has not ended yet
    ├── JobFailed                 1
    ├── TimedOut                  1   the time that was given is over; also a TimeoutError
    └── ChannelError              1
        ├── NotLaunched           1   a replica's API was used outside a launch
        ├── LearnerGone           1   the learner has ended the job
        └── ProtocolError         1   a malformed or foreign message
"""

from typing import ClassVar

__all__ = [
    "ChannelError",
    "DoesNotFit",
    "GpuschedError",
    "HostFault",
    "JobFailed",
    "LearnerGone",
    "NeverFits",
    "NoDaemon",
    "NoProgram",
    "NotExecutable",
    "NotFound",
    "NotLaunched",
    "NotNow",
    "ProtocolError",
    "StillRuns",
    "TimedOut",
    "UsageError",
    "WorkloadError",
    "exit_code_of",
]


class GpuschedError(Exception):
    """Base of all errors. `message`: what happened, and to what. `hint`: what the person can do."""

    exit_code: ClassVar[int] = 1
    code: ClassVar[str] = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a process that ends with `error`; an OSError that got so far is the host's fault."""
    return error.exit_code if isinstance(error, GpuschedError) else HostFault.exit_code


class UsageError(GpuschedError):
    """An option, a number or a name that cannot be understood."""

    exit_code = 2
    code = "usage"


class WorkloadError(UsageError):
    """A workload file that cannot be understood; the message names the file and the key."""

    code = "workload"


class NoProgram(UsageError):
    """A command whose program is not here; the code is that of a shell."""

    exit_code = 127


class NotExecutable(UsageError):
    """A command whose program is here and cannot be executed; the code is that of a shell."""

    exit_code = 126


class DoesNotFit(GpuschedError):
    """A request that has no place; raised only as one of its two subclasses."""

    exit_code = 3
    code = "does-not-fit"


class NeverFits(DoesNotFit):
    """A request that would not fit even if the host were idle."""

    code = "never-fits"


class NotNow(DoesNotFit):
    """A request that would fit if leases or foreign memory went away."""

    code = "not-now"


class NotFound(GpuschedError):
    """There is no such job."""

    exit_code = 4
    code = "not-found"


class NoDaemon(NotFound):
    """There is no daemon, or it speaks another version, or it does not answer in time."""

    code = "no-daemon"


class HostFault(GpuschedError):
    """The host is at fault: driver, permissions, a missing package, a full disk."""

    exit_code = 5
    code = "host-fault"


class StillRuns(HostFault):
    """A job that is to start, and of which an earlier attempt has not ended yet."""


class JobFailed(GpuschedError):
    """A job ended without success."""

    code = "job-failed"


class TimedOut(GpuschedError, TimeoutError):
    """The time that was given is over; what was waited for goes on."""

    code = "timed-out"


class ChannelError(GpuschedError):
    """Something went wrong between learner and actors."""

    code = "channel"


class NotLaunched(ChannelError):
    """A replica's API was used in a process that gpusched did not launch."""

    code = "not-launched"


class LearnerGone(ChannelError):
    """The job is over, or goes on without this actor, or its learner is silent: an actor ends when it sees this."""

    code = "learner-gone"


class ProtocolError(ChannelError):
    """A message that is malformed, too large, or of another protocol version."""

    code = "protocol"
