"""Sweeps: one command or workload, many times, with other values of its parameters; see gpusched.model.array."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack, get_type_hints

import msgspec
from msgspec.structs import replace

from gpusched.api.arguments import RunArguments, SubmitArguments, SweepArguments, with_arguments
from gpusched.api.commands import command_submission, with_preload
from gpusched.api.handle import Job
from gpusched.api.plan_arguments import require_known
from gpusched.api.queue import Submitted
from gpusched.api.queue import submit as submit_to_queue
from gpusched.api.selecting import linked, only, selected
from gpusched.api.validation import SomeJobs, require_list, require_one, require_type
from gpusched.api.workloads import Options, WorkloadName, named_workload, own_options
from gpusched.control import messages
from gpusched.errors import UsageError
from gpusched.execution.submission import outer_environment, unencodable
from gpusched.linux.attributes import current_attributes
from gpusched.model.array import INDEX, MOST_MEMBERS, Array, AtMost, Numbers, Values, filled_in
from gpusched.settings import Settings, load_settings

if TYPE_CHECKING:
    from gpusched.model.job import Submission

__all__ = ["Parameters", "prepare_sweep", "resume", "sweep"]

Parameters = Mapping[str, Sequence[object]]
"""The values of each parameter by its name, such as {"lr": [1e-3, 1e-4], "seed": range(10)}."""

_SEVERAL: Final = 2
_MOST_BYTES: Final = 4 << 20
"""Of all values together: they are part of one message, and of one row."""


@with_arguments(SweepArguments)
def sweep(
    what: WorkloadName | Sequence[str | os.PathLike[str]],
    parameters: Parameters | Sequence[Mapping[str, object]] | None = None,
    *,
    array: range | None = None,
    at_most: int | None = None,
    options: Options | None = None,
    preload: Sequence[str] = (),
    **given: Unpack[SweepArguments],
) -> Job:
    """Queue a command (a list) or a workload (its name) once for each combination of its parameters' values.

    The members have one id, such as "train-7", and are called "train-7[0]" and so on. They start as places become free,
    `at_most` at the same time. In a command, {lr} stands for the value of `lr` and {index} for the member's number; of
    a workload the parameters are its own options.

    `parameters` as a list of mappings has the values of each member. Without them, `array` has the numbers of members
    that differ in {index} alone, such as range(1, 101). `preload`: modules that are imported once for all members of a
    command of Python, which are forked from that. Raises UsageError, and what run and submit raise.

    Example: gpusched.sweep(["python", "train.py", "--lr", "{lr}"], {"lr": [1e-3, 1e-4]}, fraction=0.25, at_most=8)
    """
    settings = load_settings(os.environ)
    submission = prepare_sweep(
        what, parameters, array=array, at_most=at_most, options=options, preload=preload, **given
    )
    submitted = submit_to_queue(submission, settings=settings)
    return Job(submitted.job.id, Path(submitted.job.run_dir), warnings=submitted.warnings)


@with_arguments(SweepArguments)
def prepare_sweep(
    what: WorkloadName | Sequence[str | os.PathLike[str]],
    parameters: Parameters | Sequence[Mapping[str, object]] | None = None,
    *,
    array: range | None = None,
    at_most: int | None = None,
    options: Options | None = None,
    preload: Sequence[str] = (),
    **given: Unpack[SweepArguments],
) -> "Submission":
    """Return what `sweep` would queue. Raises what it raises, but for the daemon's refusals."""
    require_type(at_most, AtMost | None, "at_most")
    if isinstance(what, str | os.PathLike):
        if preload:
            raise UsageError("preload is for a sweep of a command", "a workload names it in its workload.toml")
        base = _of_workload(what, options, given)
        parameters = _of_options(what, options, parameters)
    else:
        base = with_preload(_of_command(what, options, given), preload)
    found = _array(parameters, array, at_most)
    if base.command is not None:
        _require_used(base, found)
    return replace(base, array=found)


def resume(array: SomeJobs, *, settings: Settings | None = None) -> Submitted:
    """Run those members of an array again that failed, were stopped or lost, and those that never began.

    They keep their ids and directories, and see in GPUSCHED_ATTEMPT that they ran before. As no environment is kept of
    jobs that have ended, they have that of this process. Raises UsageError where there is nothing to run, or for a job
    that is no array or has not ended.
    """
    name = require_one(array, "array")
    with linked(settings or load_settings(os.environ), (name,)) as link:
        request = messages.Resume(
            id=only(name, selected(link, (name,), _SEVERAL)),
            environ=outer_environment(),
            attributes=current_attributes(),
        )
        return Submitted(link.again(request), tuple(unencodable(os.environ)))


def _of_command(
    command: Sequence[str | os.PathLike[str]], options: Options | None, given: Mapping[str, Any]
) -> "Submission":
    if options:
        raise UsageError("options are those of a workload", "put them into the command")
    chosen = _only_of(given, RunArguments, "a workload")
    return command_submission(command, chosen, load_settings(os.environ))


def _of_workload(workload: WorkloadName, options: Options | None, given: Mapping[str, Any]) -> "Submission":
    from gpusched.api.launching import prepare

    chosen = _only_of(given, SubmitArguments, "a command")
    found = prepare(workload, options=options, begins="later", **chosen).submission()
    if found.network is not None:
        raise UsageError("the members of a sweep run on this host alone", "leave --listen and --engine out")
    return found


def _only_of(given: Mapping[str, Any], table: type, other: str) -> dict[str, Any]:
    """Return what is given of `table`. Raises UsageError for what only the `other` kind of sweep has."""
    require_known(given, SweepArguments)
    known = get_type_hints(table)
    wrong = [name for name, value in given.items() if name not in known and value not in (None, False)]
    if wrong:
        raise UsageError(f"--{wrong[0].replace('_', '-')} is for a sweep of {other}", "leave it out")
    return {name: value for name, value in given.items() if name in known}


def _array(
    parameters: Parameters | Sequence[Mapping[str, object]] | None, numbers: range | None, at_most: int | None
) -> Array:
    """Return the array of these parameters. Raises UsageError."""
    if (parameters is None) == (numbers is None):
        raise UsageError("a sweep needs parameters or numbers of members", "give one of both: --param, --from, --array")
    if numbers is not None:
        require_type(numbers, Any, "array")
        if (
            not isinstance(numbers, range)
            or numbers.step != 1
            or numbers.start < 0
            or not numbers
            or numbers[-1] > MOST_MEMBERS
        ):
            raise UsageError(
                f"array: {numbers!r} are no numbers of members", f"give a range from 0 to {MOST_MEMBERS:,}, by 1"
            )
        _require_count(len(numbers))
        return Array(count=len(numbers), first=numbers.start, at_most=at_most)
    if isinstance(parameters, Mapping):
        names = tuple(map(str, parameters))
        values = tuple(_values(name, parameters[name]) for name in names)
        count = math.prod(one.last - one.first + 1 if isinstance(one, Numbers) else len(one) for one in values)
        _require_count(count)
        found = Array(count=count, at_most=at_most, names=names, values=values)
    else:
        found = _of_rows(require_list(parameters, "parameters"), at_most)
    return _sound(found)


def _of_rows(rows: Sequence[Mapping[str, object]], at_most: int | None) -> Array:
    _require_count(len(rows))
    for row in rows:
        require_type(row, dict[str, Any], "parameters")
    names = tuple(rows[0])
    for number, row in enumerate(rows):
        if tuple(row) != names:
            raise UsageError(f"row {number} has other parameters than the first: {', '.join(row)}", "give all of them")
    texts = tuple(tuple(map(_text, row.values())) for row in rows)
    return Array(count=len(rows), at_most=at_most, names=names, rows=texts)


def _sound(array: Array) -> Array:
    """Return the array. Raises UsageError for one that is too large, or that no message can hold."""
    if not array.names or any(
        not name.isidentifier() and not name.replace("-", "_").isidentifier() for name in array.names
    ):
        raise UsageError("a parameter without a name, or with one that is none", "letters, digits, - and _ make a name")
    if INDEX in array.names:
        raise UsageError(f"{{{INDEX}}} is the number of the member", "give the parameter another name")
    try:
        size = len(msgspec.msgpack.encode(array))
        msgspec.convert(msgspec.to_builtins(array), Array)
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise UsageError(f"the values of the parameters cannot be kept: {error}", "put them into a file") from None
    if size > _MOST_BYTES:
        raise UsageError(f"the values of the parameters take {size >> 20} MiB", "put them into a file, and use {index}")
    return array


def _values(name: str, given: object) -> Values:
    if isinstance(given, range) and given.step == 1 and given:
        return Numbers(first=given.start, last=given.stop - 1)
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise UsageError(f"{name}: {given!r} is no list of values", "give one or more")
    return tuple(map(_text, given))


def _text(value: object) -> str:
    text = str(value)
    if "\0" in text:
        raise UsageError(f"{text!r}: a value with a zero byte", "leave it out")
    return text


def _require_count(count: int) -> None:
    if not 1 <= count <= MOST_MEMBERS:
        raise UsageError(f"a sweep of {count:,} members", f"1 to {MOST_MEMBERS:,} can be queued at once")


def _require_used(base: "Submission", array: Array) -> None:
    """Raise UsageError for a parameter that the command does not name: all its values would do the same."""
    argv = base.workload.roles[0].command
    for name in array.names:
        if all(filled_in(word, {name: ""}) == word for word in argv):
            raise UsageError(
                f"the command has no {{{name}}} for the values of {name}", f"write {{{name}}} where they go"
            )


def _of_options(
    workload: WorkloadName,
    options: Options | None,
    given: Parameters | Sequence[Mapping[str, object]] | None,
) -> Parameters | Sequence[Mapping[str, object]] | None:
    """Return parameters by the names of a workload's options, their values as JSON. Raises UsageError."""
    if given is None or not isinstance(given, Mapping | Sequence):
        return given
    from gpusched.api.workloads import chosen_under, settings_class

    named = named_workload(workload)
    of = settings_class(named)
    hint = f"see gpusched launch {named.name} -- --help"

    def value(name: str, one: object) -> str:
        if of is None or name not in of.__struct_fields__:
            known = ", ".join(of.__struct_fields__) if of else "it has none"
            raise UsageError(f"{named.name} has no option {name!r}", f"its options: {known}")
        chosen = chosen_under(named, of, {**own_options(options), name: one}, hint)
        if chosen.workload.roles != named_under.roles:
            raise UsageError(
                f"{name} changes what {named.name} needs", "sweep over other options, and queue it for each"
            )
        return msgspec.json.encode(msgspec.json.decode(chosen.options)[name]).decode()

    named_under = chosen_under(named, of, own_options(options), hint).workload if of else named
    if isinstance(given, Mapping):
        by_name = {str(name).replace("-", "_"): one for name, one in given.items()}
        return {name: [value(name, each) for each in some] for name, some in by_name.items()}
    rows = ({str(name).replace("-", "_"): one for name, one in row.items()} for row in given)
    return [{name: value(name, one) for name, one in row.items()} for row in rows]
