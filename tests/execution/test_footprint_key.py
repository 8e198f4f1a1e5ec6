"""Which runs are runs of the same: values of options make no other program, its script and directory do."""

import json

import pytest
from msgspec.structs import replace

from gpusched.execution.footprint_key import footprint_key, footprint_keys, memory_options, normalised
from gpusched.execution.submission import command_submission
from gpusched.model.job import Submission
from gpusched.model.plan import Request, RoleRequest
from gpusched.model.workload import Memory, Role, Workload


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python train.py --lr 1e-3", "python /home/a/train.py"),
        ("python3.12 -u -W ignore train.py --lr 1e-4", "python /home/a/train.py"),
        ("/opt/venv/bin/python /data/train.py", "python /data/train.py"),
        ("python -m pkg.train --lr 1", "python -m pkg.train in /home/a"),
        ("python -um pkg.train", "python -m pkg.train in /home/a"),
        ("torchrun --nproc-per-node 2 train.py --lr 1", "torchrun /home/a/train.py"),
        ("uv run train.py --config=big.yaml", "uv run /home/a/train.py"),
        ("./bin/simulate --steps 100", "/home/a/bin/simulate in /home/a"),
        ("simulate 1.5 --steps 100", "simulate in /home/a"),
        ("simulate lr=0.1 --steps 100 --of data.csv", "simulate in /home/a"),
        ("simulate large 1.5", "simulate large in /home/a"),
        ("uv run python -m train --config big.yaml", "uv run python -m train in /home/a"),
        ("uv run --with einops python -um train", "uv run python -m train in /home/a"),
        ("uv run train --lr 1", "uv run train in /home/a"),
        ("uv run python -c text", "uv run python -c text in /home/a"),
        ("torchrun --nproc-per-node 2 -m train --lr 1", "torchrun -m train in /home/a"),
        ("torchrun --standalone train.py", "torchrun /home/a/train.py"),
        ("accelerate launch --config_file big.yaml --module=pkg.train x", "accelerate launch -m pkg.train in /home/a"),
        ("torchrun -m", "torchrun -m  in /home/a"),
        ("make train", "make train in /home/a"),
        ("make -f other.mk train", "make train in /home/a"),
        ("bash -o pipefail -c text", "bash -c text in /home/a"),
        ("env SEED=1 python train.py", "env python /home/a/train.py"),
        ("python", "python in /home/a"),
        ("python -m", "python -m  in /home/a"),
    ],
)
def test_a_command_is_its_program_and_its_script(command: str, found: str) -> None:
    assert normalised(command.split(), "/home/a") == found


def test_the_text_of_a_shell_is_its_program() -> None:
    assert normalised(["bash", "-c", "python a.py --lr 1"], "/home/a") == "bash -c python a.py --lr 1 in /home/a"
    assert normalised(["python", "-c", "import a"], "/home/a") == "python -c import a in /home/a"


@pytest.mark.parametrize("module", ["gpusched.calls", "gpusched.submitit"])
def test_a_job_that_runs_functions_of_a_program_has_no_key(module: str) -> None:
    assert footprint_keys(command_submission(["python", "-u", "-m", module, "folder"], {"memory": "1GiB"}, {})) == {}


def test_processes_make_another_key_of_a_command() -> None:
    one = command_submission(["python", "a.py"], {"memory": "1GiB"}, {})
    two = command_submission(["python", "a.py", "--x"], {"memory": "2GiB", "processes": "2"}, {})
    assert footprint_keys(one) != footprint_keys(two)
    assert footprint_keys(one) == footprint_keys(command_submission(["python", "a.py", "-y"], {"fraction": "0.5"}, {}))


@pytest.mark.parametrize("letter", ["x", "\U0001f40d", "\udcff"])
def test_a_long_key_is_short_and_another_one_for_another_text(letter: str) -> None:
    def key(end: str) -> str:
        command = command_submission(["sh", "-c", letter * 9000 + end], {"memory": "1GiB"}, {})
        return footprint_keys(command)["command"]

    assert key("a") == key("a") != key("b")
    assert len(key("a")) < 1000
    of = [footprint_key("lab", "actor", json.dumps({"tokens": letter * 9000 + end})) for end in "ab"]
    assert of[0] != of[1]
    assert max(map(len, of)) < 1000


def of_workload(options: bytes) -> Submission:
    role = Role(name="actor", command=("a",), memory=Memory(min_mib=512))
    made = command_submission(["a"], {"memory": "1GiB"}, {})
    request = Request(workload="lab", roles=(RoleRequest(name="actor", count=3, memory=role.memory),))
    workload = Workload(name="lab", roles=(role,), settings="m:S", memory_options=("batch", "network"))
    return replace(made, command=None, workload=workload, request=request, options=options)


def test_of_a_workload_the_options_count_that_its_file_names() -> None:
    small = of_workload(b'{"network":"small","batch":8,"lr":0.1}')
    assert footprint_keys(small) == footprint_keys(of_workload(b'{"lr":0.2,"batch":8,"network":"small"}'))
    assert footprint_keys(small) != footprint_keys(of_workload(b'{"network":"small","batch":16,"lr":0.1}'))
    assert list(footprint_keys(small)) == ["actor"]
    assert memory_options(of_workload(b"nonsense")) == "{}"
