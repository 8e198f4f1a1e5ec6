"""Which runs are runs of the same: the key under which the footprint of a role is kept and found. No I/O.

Of a workload it is its name, the role, and those of its options on which its memory depends by its file; of a command
its program, the plain words up to its script or module, and that, without options, and how many processes it has. The
model of device is another column, and the framework is known only after a run.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpusched.model.job import Submission
from gpusched.planner.command import ROLE

__all__ = ["footprint_key", "footprint_keys", "memory_options", "normalised"]

_LONGEST: Final = 256
_PYTHON: Final = re.compile(r"python[\d.]*|pypy[\d.]*")
_WITH_VALUE: Final = ("-W", "-X", "--check-hash-based-pycs")
_SCRIPT: Final = re.compile(r"[^-=][^=]*\.[A-Za-z]\w{0,7}")
_SOURCE: Final = re.compile(r"[^-=][^=]*\.(py|sh|bash|pl|R|r|jl|lua|js|ipynb)")
_MODULE: Final = re.compile(r"-[bBdEiIOqsSuvx]*m|--module")
_TEXT: Final = re.compile(r"-[A-Za-z]*c")
_RUNS_TEXT: Final = re.compile(r"\w*sh|python[\d.]*|pypy[\d.]*")
_PLAIN: Final = re.compile(r"(?!\.\d)[A-Za-z_./@~][^=]*")
_CALLS: Final = ("gpusched.calls", "gpusched.submitit")
"""What runs functions of an Executor, or of submitit: calls of one are no runs of the same."""

_ALONE: Final = "{}"


def footprint_keys(submission: Submission) -> dict[str, str]:
    """Return the key of each role that is asked for, by its name; none of a job that runs functions of a program."""
    options = memory_options(submission)
    if submission.command is not None:
        command = submission.workload.roles[0].command
        if any(module in command for module in _CALLS):
            return {}
        what = normalised(command, submission.cwd)
        if submission.command.processes > 1:
            options = json.dumps({"processes": submission.command.processes})
        return {ROLE: footprint_key(what, ROLE, options)}
    roles = submission.request.roles if submission.request else ()
    return {role.name: footprint_key(submission.workload.name, role.name, options) for role in roles}


def footprint_key(what: str, role: str, options: str) -> str:
    """Return the key of a role of a workload, or of a command, under the options that change its memory."""
    return json.dumps([_short(part) for part in (what, role, options)])


def _short(text: str) -> str:
    """Return a text, or its digest where it is long: a key goes into a message, and into each row of a table."""
    content = json.dumps(text).encode()
    if len(content) <= _LONGEST:
        return text
    from hashlib import sha256

    return f"sha256 {sha256(content).hexdigest()}"


def memory_options(submission: Submission) -> str:
    """Return those of a job's options on which its memory depends, as JSON; "{}" if there are none."""
    names = submission.workload.memory_options
    if not names:
        return _ALONE
    try:
        given = msgspec.json.decode(submission.options, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # of a peer, perhaps
        return _ALONE
    return json.dumps({name: given[name] for name in sorted(names) if name in given})


def normalised(argv: Sequence[str], cwd: str) -> str:
    """Return a command's program and its script or module, without its options and their values.

    A script stands with its directory, and all else with that in which it is run: another one may have the same name.
    """
    program = Path(argv[0]).name
    what = _of_python(argv[1:], cwd) if _PYTHON.fullmatch(program) else _of_other(program, argv[1:], cwd)
    if _PYTHON.fullmatch(program):
        program = "python"
    elif "/" in argv[0]:
        program = str(Path(cwd) / argv[0])
    return " ".join([program, *what])


def _of_python(arguments: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield what Python runs: `-m MODULE`, the text after -c, or a file (docs.python.org/3/using/cmdline.html)."""
    rest = iter(arguments)
    for word in rest:
        if word.startswith("-") and not word.startswith("--") and word[-1:] in ("c", "m"):
            yield from (f"-{word[-1]}", next(rest, ""), f"in {cwd}")
            return
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-") or word == "-":
            yield str(Path(cwd) / word)
            return
    yield f"in {cwd}"


def _of_other(program: str, arguments: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield the plain words up to a script, a module or the text for a shell, and that; all of them if there is none.

    A word behind an option may be its value, and so may a number: these are none, but for a script's name.
    """
    rest, runs, before = iter(arguments), program, ""
    for word in rest:
        option, value = word.partition("=")[::2]
        if _MODULE.fullmatch(option):
            yield from ("-m", value or next(rest, ""))
            break
        if _TEXT.fullmatch(word) and (not before or _RUNS_TEXT.fullmatch(runs)):
            yield from (word, next(rest, ""))
            break
        if (_SOURCE if before.startswith("-") else _SCRIPT).fullmatch(word):
            yield str(Path(cwd) / word)
            return
        if _PLAIN.fullmatch(word) and not before.startswith("-"):
            runs = Path(word).name
            yield word
        before = word
    yield f"in {cwd}"
