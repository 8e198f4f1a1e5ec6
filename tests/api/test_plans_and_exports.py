"""dry_run and export: what would be started here or elsewhere, as values and as text."""

import json

import pytest

import gpusched
from gpusched.api.manifests import export
from gpusched.errors import NotNow, UsageError
from tests.cli.command import Command

M = "1x16GiB"


def test_a_dry_run_is_what_the_command_line_prints(command: Command) -> None:
    workload = command.toy("for_ever.py")

    found = gpusched.dry_run(workload, procs=1, machine=M)

    printed = json.loads(command.run("launch", workload, "--procs", "1", "--machine", M, "--dry-run", "--json").stdout)
    assert list(found.commands) == ["learner.0", "actor.0"]
    assert {name: list(argv) for name, argv in found.commands.items()} == printed["commands"]
    assert found.plan.document() == {name: printed[name] for name in found.plan.document()}
    assert not (command.state / "jobs").exists()


def test_a_dry_run_counts_what_runs_on_a_simulated_machine(command: Command) -> None:
    workload = command.toy("for_ever.py")
    gpusched.launch(workload, machine=M, learner_memory="10GiB")

    with pytest.raises(NotNow):
        gpusched.dry_run(workload, machine=M, learner_memory="10GiB")
    assert gpusched.plan(workload, machine=M, learner_memory="10GiB").counts == (3,)


@pytest.mark.usefixtures("command")
def test_a_dry_run_on_a_cluster_names_what_plans_there() -> None:
    with pytest.raises(UsageError, match="slurm is a cluster") as caught:
        gpusched.dry_run("averaging", procs=2, engine="slurm", gpus_per_node=1)

    assert "plan_on_cluster" in str(caught.value.hint)


@pytest.mark.parametrize("kind", ["kubernetes", "compose", "slurm"])
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_an_export_is_what_the_command_line_writes(kind: str, as_json: bool, command: Command) -> None:
    given: dict[str, object] = {"gpus_per_node": 1} if kind == "slurm" else {"machine": M, "image": "lab/snake:1"}
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]

    found = export(kind, "snake", options={"network": "small"}, procs=2, json=as_json, **given)  # type: ignore[arg-type]

    flags, out = ("--json",) if as_json else (), command.home / "out"
    told = command.run("export", kind, "snake", "--network", "small", "--procs", "2", *words, *flags, "-o", f"{out}/")
    assert told.returncode == 0, told.stderr
    (written,) = out.iterdir()
    assert (written.name, written.read_text()) == (found.file, found.text)


def test_an_argument_of_another_kind_is_refused(command: Command) -> None:
    wrong: list[tuple[str, dict[str, object]]] = [
        ("compose", {"keys": "keys"}),
        ("compose", {"nodes": 2}),
        ("slurm", {"image": "lab/snake:1"}),
        ("kubernetes", {"share_resource": "mig"}),
        ("kubernetes", {"name": 5}),
        ("podman", {}),
        ("compose", {"engine": "slurm"}),
        ("slurm", {"engine": "ray"}),
        ("kubernetes", {"keys": 5}),
    ]
    for kind, given in wrong:
        with pytest.raises(UsageError):
            export(kind, "snake", machine=M, **given)  # type: ignore[arg-type]
    assert not (command.home / "keys").exists()


def test_the_keys_of_an_export_may_be_a_path_as_those_of_join(command: Command) -> None:
    export("kubernetes", "snake", procs=2, machine=M, keys=command.home / "keys")

    assert list((command.home / "keys").glob("*.key"))
