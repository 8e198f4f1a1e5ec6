"""Processes at the other end of a way, forked before anything is opened; what starts them is not measured.

Each opens its own side of the way then; a pipe beside it says when.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from gpusched.linux.processes import set_death_signal

__all__ = ["Pipe", "end_all", "forked"]

Pipe: TypeAlias = "Connection[Any, Any]"


def forked(child: Callable[..., None], *arguments: Any) -> Pipe:
    """Fork a process that calls `child(pipe, *arguments)` and ends with this one; return the pipe's other end."""
    here, there = multiprocessing.Pipe()
    pid = os.getpid()

    def run() -> None:
        set_death_signal(signal.SIGKILL)
        if os.getppid() != pid:
            return
        here.close()
        child(there, *arguments)

    multiprocessing.get_context("fork").Process(target=run, daemon=True).start()
    there.close()
    return here


def end_all() -> None:
    """Kill all processes that forked() made."""
    for child in multiprocessing.active_children():
        child.kill()
        child.join()
