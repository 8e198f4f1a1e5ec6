"""An engine that is not gpusched's own: one module, one line in the table, and no change anywhere else."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import gpusched
from gpusched.api.arguments import SubmitArguments
from gpusched.api.clusters import engines, plan_on_cluster
from gpusched.api.manifests import export, kinds
from gpusched.engines.registry import cluster_engine, clusters
from gpusched.errors import HostFault, UsageError
from gpusched.execution.nodes import learner_directory
from gpusched.settings import ENGINES, load_settings
from tests.api.conftest import command  # noqa: F401 (a fixture)
from tests.cli.command import Command
from tests.engines.toy_engine import ENGINE
from tests.patience import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def toy(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:  # noqa: F811 (a fixture)
    """A gpusched with the engine `toy` registered."""
    monkeypatch.setitem(ENGINES, "toy", "tests.engines.toy_engine")
    monkeypatch.chdir(ROOT)
    yield command
    for job in gpusched.jobs(state="running"):
        job.stop(kill=True)
        job.wait()


def workload(toy: Command, **given: Any) -> str:
    path = Path(toy.toy("feeding.py", memory=False, **given))
    path.write_text(path.read_text().replace('"-S", ', ""))  # it imports NumPy
    return str(path)


def test_a_workload_runs_on_a_registered_engine_to_its_end(toy: Command) -> None:
    job = gpusched.launch(workload(toy, actors=3), engine="toy", nodes=2, patience=30, engine_options={"rack": "a"})

    until(lambda: (found := job.status()).state == "running" and not found.note, "both nodes have begun")
    status = job.status()
    assert (status.engine, len({one.node for one in status.replicas})) == ("toy", 1)
    assert [one.name for one in status.replicas] == ["learner.0", "actor.0", "actor.1", "actor.2"]
    fed = learner_directory(job.run_dir) / "fed.json"
    until(lambda: fed.exists() and "actor.2" in fed.read_text(), "an actor of the second node has sent a batch")
    (fed.parent / "end").touch()
    assert job.wait().state == "succeeded"


def test_stopping_the_job_ends_its_nodes(toy: Command) -> None:
    job = gpusched.launch(workload(toy), engine="toy")
    until(lambda: job.status().state == "running", "it runs")

    job.stop()

    assert job.wait().state == "cancelled"
    until(lambda: not toy.running(), "no process is left")


def test_the_workload_file_and_the_configuration_may_name_a_registered_engine(toy: Command, tmp_path: Path) -> None:
    planned = plan_on_cluster(workload(toy, job='engine = "toy"'), nodes=2)
    assert (planned.job.engine, planned.needs, planned.script) == ("toy", "rack a", "")
    assert repr(planned) == "3 processes on 2 nodes of toy: learner.0 actor.0, actor.1"
    (tmp_path / "config.toml").write_text('engine = "toy"')
    assert load_settings(toy.env | {"GPUSCHED_CONFIG": str(tmp_path / "config.toml")}).engine == "toy"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"engine": "toy", "engine_options": {"rack": "c"}}, "there is no rack c"),
        ({"engine": "slurm", "engine_options": {"rack": "a"}}, "--rack is in the room of toy"),
        ({"engine": "toy", "engine_options": {"site": ["-p"]}}, "--site is for sbatch, and toy has none"),
        ({"engine": "toy", "engine_options": {"shelf": "1"}}, "no engine has an option 'shelf'"),
        ({"engine": "toy", "engine_options": {"rack": ["a", "b"]}}, "--rack is given 2 times"),
        ({"engine_options": {"rack": "a"}}, "--rack belongs to a cluster"),
        ({"engine": "toys"}, "there is no engine 'toys'"),
        ({"engine": "toy", "nodes": 0}, "nodes"),
        ({"engine": "toy", "engine_options": {"rack": 3}}, "engine_options"),
    ],
)
def test_the_options_of_an_engine_are_checked_by_its_registration(
    toy: Command, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        gpusched.launch(workload(toy), **given)
    assert message in error.value.message
    assert not list(toy.state.glob("jobs/*"))


def test_what_the_registration_finds_out_first_keeps_a_launch_from_making_a_job(toy: Command) -> None:
    with pytest.raises(HostFault, match="rack b has no power"):
        gpusched.launch(workload(toy), engine="toy", engine_options={"rack": "b"})
    assert not list(toy.state.glob("jobs/*"))


def test_the_command_line_has_the_options_that_an_engine_registered(toy: Command) -> None:
    lines = (
        "import sys",
        "from gpusched.settings import ENGINES",
        "ENGINES['toy'] = 'tests.engines.toy_engine'",
        "from gpusched.cli.main import main",
        "sys.exit(main())",
    )

    def gpusched_with_toy(*words: str) -> str:
        argv = [sys.executable, "-c", "\n".join(lines), "launch", *words]
        done = subprocess.run(argv, env=toy.env, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert "Of toy: a or b." in gpusched_with_toy("--help")
    path = workload(toy)
    assert gpusched_with_toy(path, "--engine", "toy", "--rack", "b", "--dry-run").startswith(
        "# rack b\n# would submit 3"
    )
    assert "slurm or ray or toy" in gpusched_with_toy(path, "--rack", "b")
    assert "rack b has no power" in gpusched_with_toy(path, "--engine", "toy", "--rack=b")


def test_what_an_engine_writes_as_a_script_is_exported(toy: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with_script = msgspec.structs.replace(ENGINE, script=lambda job, name: f"run {name} on {len(job.nodes)}\n")
    monkeypatch.setattr("tests.engines.toy_engine.ENGINE", with_script)

    assert kinds() == ("kubernetes", "slurm", "toy", "compose")
    found = export("toy", workload(toy), nodes=2, engine_options={"rack": "b"})
    assert (found.text, found.file) == ("run toy on 2\n", "toy.sh")
    with pytest.raises(UsageError, match="--rack belongs to slurm or toy"):
        export("compose", workload(toy), engine_options={"rack": "b"})


@pytest.mark.parametrize("name", clusters())
def test_each_engine_registers_what_runs_its_jobs(name: str) -> None:
    from importlib.util import find_spec

    assert find_spec(cluster_engine(name).module) is not None
    assert engines()[name] == cluster_engine(name).options
    assert not engines()[name].keys() & get_type_hints(SubmitArguments).keys(), "an option of launch is not replaced"
