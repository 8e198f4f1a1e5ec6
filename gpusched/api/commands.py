"""A command as it is typed or given to gpusched.run, as a submission."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from gpusched.api.arguments import (
    CommandArguments,
    ProgramArguments,
    RunArguments,
    command_texts,
    follows,
    queue_fields,
    require_types,
    span_text,
)
from gpusched.api.plan_arguments import require_known
from gpusched.api.validation import require_list, require_type
from gpusched.errors import UsageError
from gpusched.execution.command_options import command_request
from gpusched.execution.plan_options import machine_meant
from gpusched.execution.submission import GRACE_S, unencodable
from gpusched.execution.submission import command_submission as submission
from gpusched.model.job import ProcessIdentity, Submission
from gpusched.model.workload import Restart
from gpusched.settings import Settings, machine_typed
from gpusched.times import parse_seconds

__all__ = ["command_submission", "with_preload"]

_SHORTEST_GRACE_S, _LONGEST_GRACE_S = 0.1, 3600.0  # as stop_grace in a workload file
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_OURS: Final = "GPUSCHED_"


def command_submission(
    command: Sequence[str | os.PathLike[str]],
    given: Mapping[str, Any],
    settings: Settings,
    launcher: ProcessIdentity | None = None,
) -> Submission:
    """Return the submission of a command with what is `given` of RunArguments; see execution.submission.

    Raises UsageError (NoProgram, NotExecutable) and HostFault.
    """
    from gpusched.execution.requirements import require_program

    require_known(given, RunArguments)
    argv = _command_line(command)
    queue, texts = queue_fields(given), _command_texts(given)
    typed = texts.pop("machine", None)
    machine = machine_typed(typed) if command_request(texts).devices == 0 else machine_meant(typed, settings)
    if machine is not None:
        texts["machine"] = machine
    found = submission(argv, texts, queue, launcher, _grace_s(span_text(given.get("grace"), "grace")))
    found = _with_program(found, given)
    if not follows(queue):  # what goes before may still make the program
        require_program(argv[0], found.cwd, (given.get("env") or {}).get("PATH"))
    return found


def with_preload(found: Submission, modules: Sequence[str]) -> Submission:
    """Return the submission of an array of commands, with modules that are imported once for all its members.

    Raises UsageError for a command that is not run by gpusched's own Python, and for a module that it does not find.
    """
    from gpusched.zygote.protocol import command_of

    names = require_list(modules, "preload")
    require_type(names, tuple[str, ...], "preload")
    if not names:
        return found
    (role,) = found.workload.roles
    program, *arguments = role.command
    if "/" in program:  # the daemon compares it with its own Python, and is in another directory
        role = replace(role, command=(str(Path(found.cwd, program)), *arguments))
    if command_of(role.command, sys.executable, found.environ.get("PATH")) is None:
        raise UsageError(
            f"preload: {shlex.join(role.command)} is no script or module that {sys.executable} runs",
            "give python FILE.py or python -m MODULE, in the environment that gpusched is installed in",
        )
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"preload: {name!r} is no name of a module", "give one such as tensorflow")
        if not _is_module(name.partition(".")[0], found):
            raise UsageError(f"preload: there is no module {name!r} here", "install what has it, or leave it out")
    return replace(found, workload=replace(found.workload, roles=(role,), preload=names))


def _is_module(name: str, found: Submission) -> bool:
    """Return whether the members would find a module of the first level."""
    from gpusched.execution.requirements import is_installed

    theirs = [found.cwd, *found.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return PathFinder.find_spec(name, theirs) is not None or is_installed(name)


def _with_program(found: Submission, given: Mapping[str, Any]) -> Submission:
    """Return the submission with what is given of ProgramArguments."""
    require_types(given, ProgramArguments)
    env, cwd, retry = given.get("env") or {}, given.get("cwd"), given.get("retry") or 0
    if any(not name or "=" in name or "\0" in name + value for name, value in env.items()):
        raise UsageError("--env: a variable needs a name, and neither has a zero byte", "give NAME=VALUE")
    if _VISIBLE in env:
        raise UsageError(f"--env: {_VISIBLE} is what the plan decides", "choose devices with --gpus")
    if ours := [name for name in env if name.startswith(_OURS)]:
        raise UsageError(f"--env: {ours[0]} is set by gpusched itself", "leave it out")
    if odd := unencodable(env):
        raise UsageError(f"--env: {odd[0]!a} is no UTF-8", "set it in a script that the job runs")
    if retry and found.launcher is not None:
        raise UsageError("--retry belongs to a command in the background", "add -d, or leave it out")
    (role,) = found.workload.roles
    restart = Restart(policy="on-failure", max=retry) if retry else role.restart
    return replace(
        found,
        workload=replace(found.workload, roles=(replace(role, restart=restart),)),
        environ={**found.environ, **env},
        cwd=found.cwd if cwd is None else _directory(cwd),
    )


def _directory(given: str | os.PathLike[str]) -> str:
    path = Path(given).absolute()
    if not path.is_dir():
        raise UsageError(f"--cwd: {path} is no directory", "make it, or name another")
    return str(path)


def _command_line(command: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return a program and its arguments, paths as text. Raises UsageError for anything else."""
    if isinstance(command, str) or not command:
        hint = 'such as ["python", "a.py"]'
        raise UsageError(f"command: {command!r} is no list of a program and its arguments", hint)
    parts = require_list(command, "command")
    found = tuple(os.fspath(part) if isinstance(part, os.PathLike) else part for part in parts)
    require_type(found, tuple[str, ...], "command")
    return found


def _grace_s(text: str | None) -> float:
    if text is None:
        return GRACE_S
    span = parse_seconds(text, "--grace")
    if not _SHORTEST_GRACE_S <= span <= _LONGEST_GRACE_S:
        raise UsageError(f"--grace: {text!r} is too {'short' if span < 1 else 'long'}", "give a span from 0.1s to 1h")
    return span


def _command_texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Return what is given of CommandArguments but `grace`, as it is typed on the command line."""
    texts = command_texts(given, CommandArguments)
    texts.pop("grace", None)
    return texts
