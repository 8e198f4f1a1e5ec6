"""Each command and each option that a document quotes is there, on the command line as it is."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import typer.main

from gpusched.cli.application import application
from gpusched.cli.main import COMMANDS
from gpusched.template.settings import Settings as OfATemplate
from tests.docs.documented import DOCUMENTS, Quoted, commands_in, options_in
from tests.soak.__main__ import soak_parser

QUOTED: Final = [quoted for document in DOCUMENTS for quoted in commands_in(document)]
LINE: Final[Any] = typer.main.get_command(
    application((name, getattr(import_module(f"gpusched.cli.{name}"), name), COMMANDS[name]) for name in COMMANDS)  # type: ignore[arg-type]
)
WORKLOADS: Final = {
    **{
        name: import_module(f"workloads.{name}.settings").Settings
        for name in ("snake", "averaging", "cartpole", "mnist_towers")
    },
    "mine": OfATemplate,
}
"""The settings class of each workload that documents launch; `mine` is the one that `gpusched new` writes."""

ONLY_NAMED: Final = ("MissingParameter", "BadOptionUsage")
"""The errors of a command that a sentence names without its arguments, as in `gpusched keys new`."""

OF_OTHER_PROGRAMS: Final = frozenset(
    ("--shutdown-timeout", *(option for action in soak_parser()._actions for option in action.option_strings))
)
"""Options that documents quote of programs that are not gpusched."""


def workload_options(name: str) -> set[str]:
    fields = msgspec.structs.fields(WORKLOADS[name]) if name in WORKLOADS else ()
    options = {"--" + field.name.replace("_", "-") for field in fields}
    return options | {"--no-" + option[2:] for option in options} | {"--help"}


def all_options() -> set[str]:
    ours = {option for command in LINE.commands.values() for p in command.params for option in options_of(p)}
    return ours.union(OF_OTHER_PROGRAMS, {"--install-completion", "--help"}, *map(workload_options, WORKLOADS))


def options_of(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


def test_documents_quote_commands_and_this_finds_them() -> None:
    assert len(QUOTED) > 50
    assert {quoted.words[0] for quoted in QUOTED} >= {"run", "launch", "plan", "join", "ps", "keys", "doctor", "status"}


@pytest.mark.parametrize("quoted", QUOTED, ids=str)
def test_a_quoted_command_line_is_one_that_gpusched_takes(quoted: Quoted) -> None:
    name, *words = quoted.words
    if name.startswith("-"):
        assert name in {"--help", "--version", "--install-completion"}
        return
    if name == "help":  # as main has it
        name, words = words[0], ["--help"]
    assert name in COMMANDS, f"{quoted}: there is no such command"
    command = LINE.commands[name]
    try:
        context = command.make_context(name, list(words))
    except typer.Exit:  # --help
        return
    except Exception as error:
        if not quoted.whole and type(error).__name__ in ONLY_NAMED:
            return
        raise AssertionError(f"{quoted}: {getattr(error, 'message', error)}") from error
    workload = str(context.params.get("workload") or "snake")
    unknown = {word.partition("=")[0] for word in context.args if word.startswith("--")} - workload_options(workload)
    assert not unknown or workload not in WORKLOADS, f"{quoted}: {workload} has no {unknown}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_a_quoted_option_is_there(document: Path) -> None:
    assert set(options_in(document)) <= all_options()


def test_each_command_has_an_example() -> None:
    assert set(COMMANDS) <= {quoted.words[0] for quoted in QUOTED}
