"""A replica's environment: what is written is what is read; nothing slips in that must not; no secret is in it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusched import runtime
from gpusched.environment import (
    HOOK_DIRECTORY,
    Addresses,
    attempt_environment,
    child_environment,
    identity_environment,
    modules_to_preload,
    outside_environment,
    resource_environment,
    skips_hook,
    threads,
    users_visible_devices,
)
from gpusched.errors import NotLaunched, UsageError
from gpusched.frameworks.jax import fraction_variable
from gpusched.model.plan import Replica

XLA = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
LIMITED = Replica(
    name="actor.7",
    role="actor",
    rank=7,
    device_index=3,
    device_uuid="GPU-3",
    limit_mib=1133,
    context_mib=450,
    fraction=701,
)
WITHOUT_DEVICE = Replica(name="actor.7", role="actor", rank=7, threads=2)


def identity(replica: Replica, **changes: Any) -> dict[str, str]:
    run_dir = changes.pop("run_dir", "/jobs/snake-4")
    there = Addresses("ipc:///run/snake-4.sock")._replace(**changes)
    return identity_environment(replica, there, job="snake-4", role_count=32, run_dir=run_dir, settings=b"{}")


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
names = st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True)


@given(
    name=st.tuples(names, names),
    numbers=st.tuples(st.integers(0, 100_000), st.integers(1, 100_000), st.integers(0, 1000)),
    limit=st.one_of(st.none(), st.integers(1, 1 << 20)),
    fraction=st.integers(1, 10_000),
    paths=st.tuples(texts, texts, st.one_of(st.none(), texts)),
)
def test_what_is_written_is_what_the_replica_reads(
    name: tuple[str, str],
    numbers: tuple[int, int, int],
    limit: int | None,
    fraction: int,
    paths: tuple[str, str, str | None],
) -> None:
    (job, role), (rank, count, attempt), (run_dir, endpoint, keys) = name, numbers, paths
    device = {} if limit is None else {"device_uuid": "GPU-0", "limit_mib": limit, "fraction": fraction}
    replica = msgspec.convert({"name": f"{role}.{rank}", "role": role, "rank": rank, **device}, Replica)
    env = child_environment(
        {"PATH": "/bin"},
        resource_environment(replica, fraction_variable(None)),
        identity_environment(
            replica, Addresses(endpoint, keys), job=job, role_count=count, run_dir=run_dir, settings=b"{}"
        ),
        attempt_environment(attempt),
    )
    assert runtime.current_replica(env) == runtime.ReplicaIdentity(
        job=job,
        role=role,
        rank=rank,
        role_count=count,
        name=f"{role}.{rank}",
        attempt=attempt,
        run_dir=Path(run_dir),
        endpoint=endpoint,
        keys=None if keys is None else Path(keys),
        limit_mib=limit,
        fraction=None if limit is None else fraction,
    )


def test_a_replica_with_a_device_sees_that_one_and_every_framework_gets_its_limit() -> None:
    env = resource_environment(LIMITED, "XLA_CLIENT_MEM_FRACTION")
    assert env == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-3",
        "GPUSCHED_MEMORY_LIMIT_MIB": "1133",
        "GPUSCHED_MEMORY_FRACTION": "0.0701",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_CLIENT_MEM_FRACTION": "0.0701",
        "CUPY_GPU_MEMORY_LIMIT": str(1133 * 1024 * 1024),
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
    }


def test_a_replica_without_a_device_sees_none_and_has_no_limit() -> None:
    env = resource_environment(WITHOUT_DEVICE, "XLA_CLIENT_MEM_FRACTION")
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["OMP_NUM_THREADS"] == "2"
    assert not [name for name in env if "MEM" in name]
    assert runtime.memory_limit(env) == (None, None)


@pytest.mark.parametrize("replica", [LIMITED, WITHOUT_DEVICE])
@pytest.mark.parametrize("chosen", XLA)
@pytest.mark.parametrize("inherited", [(), XLA[:1], XLA[1:], XLA])
def test_never_both_names_of_jaxs_fraction(replica: Replica, chosen: str, inherited: tuple[str, ...]) -> None:
    base = dict.fromkeys(inherited, "0.9")
    env = child_environment(base, resource_environment(replica, chosen))
    expected = {chosen: "0.0701"} if replica is LIMITED else {}
    assert {name: value for name, value in env.items() if name in XLA} == expected


@pytest.mark.parametrize(
    "version", [None, "", "unknown", "0.4.1", "0.4.30", "0.4.33", "0.5.3", "0.10.2", "0.10.2.dev1+cuda"]
)
def test_the_older_name_is_used_for_every_jaxlib_that_is_known_to_take_it(version: str | None) -> None:
    assert fraction_variable(version) == "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.mark.parametrize("version", ["0.11.0", "0.11.0rc1", "1.0", "2.3.4"])
def test_the_newer_name_is_used_where_the_older_one_may_be_gone(version: str) -> None:
    assert fraction_variable(version) == "XLA_CLIENT_MEM_FRACTION"


@pytest.mark.parametrize(
    "name",
    [
        *XLA,
        "CUPY_GPU_MEMORY_LIMIT",
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        "TF_GPU_ALLOCATOR",
        "XLA_PYTHON_CLIENT_ALLOCATOR",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "GPUSCHED_MEMORY_LIMIT_MIB",
        "GPUSCHED_MEMORY_FRACTION",
        "GPUSCHED_KEYS",
        "GPUSCHED_REPLICA",
        "GPUSCHED_ANYTHING",
    ],
)
def test_what_would_undo_a_limit_or_belongs_to_another_process_is_not_inherited(name: str) -> None:
    env = child_environment({name: "1", "PATH": "/bin"}, resource_environment(WITHOUT_DEVICE, XLA[0]))
    assert name not in env
    assert env["PATH"] == "/bin"


def test_layers_win_over_what_is_inherited_and_nothing_given_is_changed() -> None:
    base, layer = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HOME": "/root"}, {"CUDA_VISIBLE_DEVICES": "GPU-3"}
    env = child_environment(base, layer)
    assert (env["CUDA_VISIBLE_DEVICES"], env["HOME"]) == ("GPU-3", "/root")
    assert base == {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "HOME": "/root"}
    assert layer == {"CUDA_VISIBLE_DEVICES": "GPU-3"}


def test_the_devices_of_a_job_are_not_taken_for_a_persons_choice() -> None:
    layer = resource_environment(LIMITED, XLA[0])
    inside = child_environment({"CUDA_VISIBLE_DEVICES": "2"}, layer)
    without = child_environment({}, resource_environment(WITHOUT_DEVICE, XLA[0]))

    assert (inside["CUDA_VISIBLE_DEVICES"], inside["GPUSCHED_VISIBLE_DEVICES"]) == ("GPU-3", "GPU-3")
    assert users_visible_devices(inside) is None
    assert users_visible_devices(without) is None
    assert users_visible_devices(inside | {"CUDA_VISIBLE_DEVICES": "0"}) == "0"
    assert users_visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == ""
    assert users_visible_devices({}) is None


def test_the_numbers_of_threads_that_a_person_has_set_stay() -> None:
    layer = resource_environment(WITHOUT_DEVICE, XLA[0])
    base = {"OMP_NUM_THREADS": "7,2", "TF_NUM_INTEROP_THREADS": "", "MKL_NUM_THREADS": "3"}

    env = child_environment(base, layer)

    assert (env["OMP_NUM_THREADS"], env["MKL_NUM_THREADS"], threads(env)) == ("7,2", "3", 7)
    assert (env["TF_NUM_INTRAOP_THREADS"], env["TF_NUM_INTEROP_THREADS"]) == ("2", "2")
    assert threads({}) == threads({"OMP_NUM_THREADS": "many"}) == 1


def test_the_threads_of_a_job_are_not_taken_for_a_persons_choice() -> None:
    inside = child_environment({}, resource_environment(WITHOUT_DEVICE, XLA[0]))

    nested = child_environment(inside, resource_environment(LIMITED, XLA[0]))
    assert (inside["OMP_NUM_THREADS"], nested["OMP_NUM_THREADS"]) == ("2", "1")
    chosen = child_environment(inside | {"OMP_NUM_THREADS": "5"}, resource_environment(LIMITED, XLA[0]))
    assert (chosen["OMP_NUM_THREADS"], chosen["TF_NUM_INTRAOP_THREADS"]) == ("5", "1")


HOOK = str(HOOK_DIRECTORY)


@pytest.mark.parametrize(
    ("inherited", "path"),
    [
        (None, [HOOK]),
        ("", [HOOK]),
        ("/a:/b", [HOOK, "/a", "/b"]),
        ("/a:", [HOOK, "/a", ""]),  # an empty entry is the working directory (sys.path), and stays
        (f"/a:{HOOK}:/b", [HOOK, "/a", "/b"]),
        (f"{HOOK}:/a", [HOOK, "/a"]),
    ],
)
def test_the_hook_is_first_on_the_path_once_and_the_rest_stays(inherited: str | None, path: list[str]) -> None:
    base = {} if inherited is None else {"PYTHONPATH": inherited}
    env = child_environment(base)
    assert env["PYTHONPATH"].split(os.pathsep) == path
    assert child_environment(env)["PYTHONPATH"] == env["PYTHONPATH"]
    assert (HOOK_DIRECTORY / "sitecustomize.py").is_file()


@pytest.mark.parametrize(
    "command",
    [
        ["{python}", "-I", "-m", "actor"],
        ["/opt/venv/bin/python3.12", "-uE", "actor.py"],
        ["python3", "-X", "dev", "-Wignore", "-W", "error", "-S", "-c", "pass"],
    ],
)
def test_a_command_that_leaves_out_the_hook_is_known(command: list[str]) -> None:
    assert skips_hook(command)


@pytest.mark.parametrize(
    "command",
    [
        ["{python}"],
        ["{python}", "-m", "actor", "-I"],
        ["python", "-us", "-X", "-I", "actor.py", "-E"],
        ["python", "-cIES", "-I"],
        ["python", "-XIES", "-WI", "actor.py"],
        ["python", "-", "-I"],
        ["pythonista", "-I"],
        ["grep", "-E", "-I", "x"],
    ],
)
def test_a_command_that_runs_the_hook_is_not_taken_for_one_that_does_not(command: list[str]) -> None:
    assert not skips_hook(command)


def test_a_key_is_only_ever_a_files_path() -> None:
    env = identity(LIMITED, keys="/jobs/snake-4/keys")
    assert [name for name in env if "KEY" in name or "SECRET" in name or "TOKEN" in name] == ["GPUSCHED_KEYS"]
    assert env["GPUSCHED_KEYS"] == "/jobs/snake-4/keys"
    assert "GPUSCHED_KEYS" not in identity(LIMITED)


def test_an_actor_of_a_host_that_joined_knows_so_and_has_a_rank_of_its_own() -> None:
    env = identity(LIMITED, joined="lab2", first_rank=2000, patience_s=900) | attempt_environment(0)
    found = runtime.current_replica(env)
    assert (found.name, found.joined, found.rank, found.patience_s) == ("actor.7", "lab2", 2007, 900)
    assert found.listen is None


def test_an_actor_of_another_node_keeps_its_name_and_rank_and_knows_that_its_learner_is_elsewhere() -> None:
    env = identity(LIMITED, endpoint="tcp://n1:5555", incarnation=2, patience_s=30)
    found = runtime.current_replica(env)
    assert (found.name, found.rank, found.role_count, found.joined) == ("actor.7", 7, 32, "")
    assert (found.incarnation, found.elsewhere, found.patience_s) == (2, True, 30)
    on_the_learners_node = runtime.current_replica(identity(LIMITED, incarnation=2))
    assert (on_the_learners_node.incarnation, on_the_learners_node.elsewhere) == (2, False)


def test_only_what_is_said_of_a_network_is_in_the_environment() -> None:
    assert runtime.current_replica(identity(LIMITED, listen="tcp://0.0.0.0:5555")).listen == "tcp://0.0.0.0:5555"
    further = {"GPUSCHED_LISTEN", "GPUSCHED_JOINED", "GPUSCHED_PATIENCE_S", "GPUSCHED_INCARNATION"}
    assert not further & identity(LIMITED).keys()
    assert runtime.current_replica(identity(LIMITED)).incarnation == 0


def test_a_process_outside_a_launch_is_told_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(NotLaunched, match="GPUSCHED_JOB is missing") as caught:
        runtime.current_replica({})
    assert "gpusched launch" in caught.value.hint


@pytest.mark.parametrize("name", sorted({*identity(LIMITED)} - {"GPUSCHED_SETTINGS"}))
def test_every_missing_variable_is_told_by_name(name: str) -> None:
    env = identity(LIMITED)
    del env[name]
    with pytest.raises(NotLaunched, match=f"{name} is missing"):
        runtime.current_replica(env)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUSCHED_RANK", "first"),
        ("GPUSCHED_ROLE_COUNT", ""),
        ("GPUSCHED_ATTEMPT", "1.5"),
        ("GPUSCHED_MEMORY_LIMIT_MIB", "lots"),
        ("GPUSCHED_MEMORY_FRACTION", "half"),
        ("GPUSCHED_MEMORY_FRACTION", "nan"),
        ("GPUSCHED_MEMORY_FRACTION", "inf"),
    ],
)
def test_every_wrong_variable_is_told_with_its_value(name: str, value: str) -> None:
    env = resource_environment(LIMITED, XLA[0]) | identity(LIMITED) | {name: value}
    with pytest.raises(NotLaunched, match=f"{name}={value} is missing or wrong"):
        runtime.current_replica(env)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    games: int = 16
    network: str = "small"


def test_options_are_read_as_what_the_workload_declares_and_have_defaults_outside_a_launch() -> None:
    assert runtime.settings(Options, {}) == Options()
    assert runtime.settings(Options, {"GPUSCHED_SETTINGS": ""}) == Options()
    assert runtime.settings(Options, {"GPUSCHED_SETTINGS": '{"games": 4}'}) == Options(games=4)


@pytest.mark.parametrize("text", ['{"games": "four"}', '{"game": 4}', "{", "[]", "null"])
def test_options_that_the_workload_does_not_have_are_told(text: str) -> None:
    with pytest.raises(UsageError, match="GPUSCHED_SETTINGS") as caught:
        runtime.settings(Options, {"GPUSCHED_SETTINGS": text})
    assert "Options" in caught.value.hint


def test_a_real_process_reads_who_it_is_from_its_own_environment() -> None:
    layers = resource_environment(LIMITED, XLA[1]), identity(LIMITED), attempt_environment(2)
    env = child_environment({**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}, *layers)
    code = "from gpusched.runtime import current_replica; me = current_replica(); "
    code += "print(me.name, me.role_count, me.attempt, me.limit_mib)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "actor.7 32 2 1133"


def test_a_replica_that_is_ready_says_so_in_its_run_directory_for_that_attempt(tmp_path: Path) -> None:
    (tmp_path / runtime.READY_DIRECTORY).mkdir()
    environ = identity(LIMITED, run_dir=str(tmp_path)) | attempt_environment(2)
    runtime.report_ready(environ)
    [file] = (tmp_path / runtime.READY_DIRECTORY).iterdir()
    assert file.name == runtime.ready_name("actor.7", 2)
    assert file.stat().st_size == 0

    os.utime(file, (7, 7))
    runtime.report_ready(environ)
    assert file.stat().st_mtime == 7, "it is ready since it said so first"


@pytest.mark.parametrize("run_dir", ["/dev/null/none", "/nowhere", "/a\0b"])
def test_a_run_directory_that_cannot_be_written_is_no_reason_to_fail(run_dir: str) -> None:
    runtime.report_ready(identity(LIMITED, run_dir=run_dir))


def test_outside_a_launch_nobody_is_told_who_is_ready() -> None:
    runtime.report_ready({})


@pytest.mark.parametrize(
    ("backend", "module"), [(None, "tensorflow"), ("", "tensorflow"), ("tensorflow", "tensorflow"), ("jax", "jax")]
)
def test_the_backend_of_keras_is_what_is_preloaded(backend: str | None, module: str) -> None:
    environ = {} if backend is None else {"KERAS_BACKEND": backend}
    assert modules_to_preload(("tensorflow", "msgspec"), environ) == (module, "msgspec")


@pytest.mark.parametrize(("lost", "left"), [(False, runtime.LEARNER_OVER), (True, runtime.LEARNER_LOST)])
def test_the_end_of_a_learner_on_another_host_is_left_for_the_supervisor(lost: bool, left: str, tmp_path: Path) -> None:
    runtime.report_learner_gone(lost=lost, environ=identity(LIMITED, run_dir=str(tmp_path)))
    assert not [*tmp_path.iterdir()], "where the learner is, its own end is seen"
    elsewhere = identity(LIMITED, run_dir=str(tmp_path), endpoint="tcp://lab1:5555")
    runtime.report_learner_gone(lost=lost, environ=elsewhere)
    assert [path.name for path in tmp_path.iterdir()] == [left]


def test_the_environment_outside_a_job_is_what_it_was_before() -> None:
    before = {"HOME": "/root", "PYTHONPATH": "/a", "GPUSCHED_STATE_DIR": "/state", "GPUSCHED_ANYTHING": "1"}
    before |= {"GPUSCHED_DRIVER_PATIENCE": "9"}
    layers = (resource_environment(LIMITED, XLA[0]), identity(LIMITED), {"TMPDIR": "/jobs/snake-4/tmp"})
    inside = child_environment(before, *layers)

    assert inside["GPUSCHED_STATE_DIR"] == "/state"
    assert inside["GPUSCHED_DRIVER_PATIENCE"] == "9", "a gpusched inside waits for the same driver"
    outside = outside_environment(inside)
    assert {name: outside.get(name) for name in before} == before | {"GPUSCHED_ANYTHING": None}
    assert not {"TMPDIR", "CUDA_VISIBLE_DEVICES", "GPUSCHED_JOB", "GPUSCHED_VISIBLE_DEVICES"}.intersection(outside)
    kept = {"TMPDIR": "/mine", "CUDA_VISIBLE_DEVICES": "1"}
    assert outside_environment(inside | kept).items() >= kept.items()
    assert outside_environment(before) == before
