"""A plain command line means the same whether typer reads it or not; one that is not plain is left to typer."""

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Annotated, Any, get_type_hints

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusched.api import arguments
from gpusched.cli.application import application
from gpusched.cli.cluster_options import OWN
from gpusched.cli.export import export
from gpusched.cli.fit import fit
from gpusched.cli.join import join
from gpusched.cli.launch import launch
from gpusched.cli.main import COMMANDS
from gpusched.cli.options import Context, Option, Options, flag, read_plainly, with_options
from gpusched.cli.plan import plan
from gpusched.cli.planning import LISTEN, PLAN
from gpusched.cli.ps import ps
from gpusched.cli.queue_options import QUEUE
from gpusched.cli.run import COMMAND, run
from gpusched.cli.status import status
from gpusched.cli.stop import stop
from gpusched.cli.wait import wait

read: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("table", "group"), [("Plan", PLAN), ("Queue", QUEUE), ("Command", COMMAND), ("Listen", LISTEN)]
)
def test_the_options_of_a_group_are_the_arguments_of_the_api_with_its_defaults(table: str, group: Options) -> None:
    @arguments.with_arguments(getattr(arguments, f"{table}Arguments"))
    def function(**_: Any) -> None: ...

    defaults = {one.name: one.default for one in signature(function).parameters.values() if one.name != "_"}

    assert {name: option.default for name, option in group.items()} == {
        name: None if default == () else default for name, default in defaults.items()
    }


@pytest.mark.parametrize(
    ("command", "own", "table"),
    [
        (plan, {"workload", "as_json"}, arguments.PlanArguments),
        (launch, {"workload", "watch", "detach", "dry_run", "as_json"}, arguments.SubmitArguments),
        (join, {"endpoint", "detach", "as_json"}, arguments.JoinArguments),
        (export, {"kind", "workload", "output", "as_json"}, arguments.ExportArguments),
        (run, {"command", "detach", "as_json"}, arguments.RunArguments),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_command_passes_on_are_arguments_of_the_api(command: Any, own: set[str], table: Any) -> None:
    passed_on, known = set(command.defaults) - own - set(OWN), set(get_type_hints(table))

    assert passed_on <= known
    left_out = {
        join: {"learner_memory"},
        launch: {"engine_options"},
        export: {"json", "engine", "engine_options", "patience"},
    }
    assert known - passed_on == left_out.get(command, set())


def test_options_of_a_table_come_by_name_plainly_read_or_not() -> None:
    @with_options({"first": Option("One."), "as_json": flag("JSON.", "--json"), "last": Option("Other.", default="z")})
    def command(*, as_json: bool, **given: Any) -> None:
        read.clear()
        read.update(given, as_json=as_json)

    expected = {"first": "a", "as_json": True, "last": "z"}
    command(**(read_plainly(command, ["--json", "--first", "a"]) or {}))
    assert read == expected
    read.clear()
    app = application([("command", command, "A command."), ("other", example, "Another.")])
    app(args=["command", "--json", "--first=a"], standalone_mode=False)
    assert read == expected


def example(
    names: Annotated[list[str] | None, Option("Names.", argument=True)] = None,
    some_text: Annotated[str, Option("A text.")] = "usual",
    number: Annotated[int | None, Option("A number.", ("--number", "-n"), least=0, most=9)] = None,
    seconds: Annotated[float | None, Option("A time.")] = None,
    as_json: Annotated[bool, Option("JSON.", ("--json",))] = False,
) -> None:
    read.update(names=names or [], some_text=some_text, number=number, seconds=seconds, as_json=as_json)


def by_typer(words: Sequence[str]) -> dict[str, Any]:
    read.clear()
    commands = [("example", example, "An example."), ("other", example, "Another.")]
    application(commands)(args=["example", *words], standalone_mode=False)
    return dict(read)


def logs(
    job: Annotated[str | None, Option("A job.", argument=True)] = None,
    follow: Annotated[bool, Option("Go on.", ("--follow", "-f"))] = False,
) -> None:
    read.update(job=job, follow=follow)


@pytest.mark.parametrize("line", ["", "snake-4", "-f snake-4", "snake-4 --follow", "--follow"])
def test_an_argument_of_one_word_is_that_word(line: str) -> None:
    read.clear()
    values = read_plainly(logs, line.split())
    assert values is not None
    logs(**values)
    plain = dict(read)
    read.clear()
    commands: list[tuple[str, Callable[..., object], str]]
    commands = [("logs", logs, "Logs."), ("other", example, "Another.")]
    application(commands)(args=["logs", *line.split()], standalone_mode=False)
    assert dict(read) == plain


def test_two_words_where_one_belongs_are_left_to_typer() -> None:
    assert read_plainly(logs, ["snake-4", "snake-5"]) is None


def plainly(words: Sequence[str]) -> dict[str, Any]:
    read.clear()
    values = read_plainly(example, words)
    assert values is not None
    example(**values)
    return dict(read)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--json",
        "a b --json c",
        "--some-text value",
        "--some-text=value",
        "--some-text=",
        "--some-text=a=b",
        "--some-text one --some-text two",
        "-n 3",
        "--number=0 --seconds 2",
        "--seconds 0.5 x",
        "--number 007",
    ],
)
def test_a_plain_line_means_what_typer_makes_of_it(line: str) -> None:
    assert plainly(line.split()) == by_typer(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "-h",
        "--",
        "-- a",
        "-",
        "--jso",
        "--json=yes",
        "--no-json",
        "-n3",
        "-n=3",
        "--number",
        "--number 10",
        "--number -1",
        "--number three",
        f"--number {'9' * 5000}",
        "--number 3.0",
        "--number ٣",
        "--seconds nan",
        "--seconds 1e3",
        "--seconds 1.2.3",
        "--some-text -x",
        "--some-text",
    ],
)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert read_plainly(example, line.split()) is None


def test_words_that_nothing_takes_are_left_to_typer() -> None:
    assert read_plainly(status, ["more"]) is None
    assert read_plainly(plan, ["--network", "small"]) is None


def test_a_command_that_is_described_in_typers_words_is_left_to_typer() -> None:
    def command(name: Annotated[str, typer.Option(help="A name.")] = "") -> None: ...

    assert read_plainly(command, []) is None


def test_a_plain_line_leaves_no_words_over() -> None:
    def command(context: Context, *, as_json: Annotated[bool, Option("JSON.", ("--json",))] = False) -> None:
        read.update(left=context.args, as_json=as_json)

    command(**(read_plainly(command, ["--json"]) or {}))

    assert read == read | {"left": [], "as_json": True}


@pytest.mark.parametrize("command", [plan, ps, status])
def test_the_commands_that_are_asked_most_can_be_read_plainly(command: Any) -> None:
    assert command.__name__ in COMMANDS
    values = read_plainly(command, ["--json"])
    assert values is not None
    assert values["as_json"] is True


def noting(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command of the same options as `command`, which notes what it is given."""

    @wraps(command)
    def note(**values: Any) -> None:
        read.clear()
        read.update(of_all(command, values))

    return note


def of_all(command: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values of all parameters: those given, and the usual ones for others."""
    parameters = signature(command).parameters.values()
    usual = {one.name: one.default for one in parameters if one.kind is not one.VAR_KEYWORD}
    told = {name: value.args if name == "context" else value for name, value in (usual | values).items()}
    return {name: value or None if isinstance(value, list) else value for name, value in told.items()}


ASKED = {command.__name__: command for command in (plan, ps, status, run, fit, stop, wait)}
LINES_OF = {name: application([(name, noting(command), name)]) for name, command in ASKED.items()}
OPTIONS = {
    "plan": [
        "--procs",
        "--workload",
        "--machine",
        "--gpus",
        "--exclude-gpus",
        "--actor-memory",
        "--policy",
        "--grow",
        "--no-grow",
        "--json",
        "--network",
    ],
    "ps": ["--why", "--all", "-a", "--last", "--ended", "--state", "--since", "--text", "--json", "--js", "-aw"],
    "status": ["--json", "--watch", "-w", "--oneline", "--machine", "--interval", "--interval", "--no-json"],
}
OPTIONS |= {
    "run": ["-d", "--fraction", "--num-gpus", "--name", "--json", "--env", "--fracti", "-dx", "true", "--gpus"],
    "fit": ["snake", "--time", "--procs", "--json", "--gpus", "--network"],
    "stop": ["snake-4", "--all", "--kill", "--last", "--state"],
    "wait": ["snake-4", "--timeout", "--json", "--last"],
}
ODD = ["-", "--", "--help"]
VALUES = [
    "",
    "3",
    "007",
    "0.5",
    ".5",
    "5.",
    ".",
    "1e3",
    "-1",
    "100001",
    "9" * 5000,
    "max",
    "nan",
    "٣",
    "a=b",
    "caf\udce9",
]


def lines(name: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    options, some = st.sampled_from(OPTIONS[name]), st.sampled_from(VALUES) | st.text(max_size=3)
    parts = st.tuples(options) | st.tuples(options, some) | st.tuples(st.builds("{}={}".format, options, some))
    words = st.lists(parts | st.tuples(some) | st.tuples(st.sampled_from(ODD)), max_size=4)
    return words.map(lambda parts: (name, [word for part in parts for word in part]))


@settings(max_examples=500)  # one line in eight is plain
@given(st.sampled_from(sorted(ASKED)).flatmap(lines))
def test_no_line_means_one_thing_read_plainly_and_another_to_typer(line: tuple[str, list[str]]) -> None:
    name, words = line
    values = read_plainly(ASKED[name], words)
    if values is None:
        return
    LINES_OF[name](args=[name, *words], standalone_mode=False)

    assert read == of_all(ASKED[name], values)
