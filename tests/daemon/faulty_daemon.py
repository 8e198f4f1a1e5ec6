"""A real daemon with an error of ours at each job whose name is that of the function which is to fail."""

import sys
from collections.abc import Callable
from typing import Any

from gpusched.daemon import lifecycle, queue, recovery
from gpusched.daemon.main import main
from gpusched.daemon.starting_jobs import StartingJobs
from gpusched.model.job import Submission
from gpusched.scheduling import machine
from gpusched.storage.job import Job


def failing(honest: Callable[..., Any], name: str) -> Callable[..., Any]:
    def fail(*arguments: Any, **more: Any) -> Any:
        asked = [one.submission if isinstance(one, Job) else one for one in arguments]
        if any(one.name == name for one in asked if isinstance(one, Submission)):
            raise ZeroDivisionError("broken on purpose")
        return honest(*arguments, **more)

    return fail


for module, function in (
    (queue, "launcher_exited"),
    (machine, "plan_for"),
    (lifecycle, "has_live_processes"),
    (recovery, "settle"),
):
    setattr(module, function, failing(getattr(module, function), function))
StartingJobs.prepare = failing(StartingJobs.prepare, "prepare")  # type: ignore[method-assign]
sys.exit(main())
