"""Real TensorFlow, in real processes: what it tells its runtime about a GPU. See recording/sitecustomize.py."""

import importlib.util
import os

import pytest

from tests.frameworks.conftest import HERE, RunScript

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="TensorFlow is not installed: it comes with the extra `tensorflow`",
)


def test_an_unchanged_eager_script_gets_the_limit_and_may_ask_for_memory_growth(run_script: RunScript) -> None:
    ran = run_script("-s", "eager.py")
    assert ran.code == 0, ran.err
    assert "done" in ran.out
    assert [(told["call"], told["devices"], told["fraction"]) for told in ran.records] == [("context", [[1133]], 0)]
    assert ran.err.count("set_memory_growth(/physical_device:GPU:0, True) changes nothing") == 1
    assert "as TensorFlow has it: Physical devices cannot be modified" in ran.out


def test_logical_devices_of_the_scripts_own_are_kept_within_the_limit(run_script: RunScript) -> None:
    ran = run_script("own_limits.py")
    assert ran.code == 0, ran.err
    assert "logical devices of 6144 MiB are shrunk to this process's 1133 MiB" in ran.err


def test_sessions_get_the_fraction_and_never_both_ways_at_once(run_script: RunScript) -> None:
    ran = run_script("sessions.py")
    assert ran.code == 0, ran.err
    told = [(each["devices"], each["fraction"]) for each in ran.records if each["call"] == "session"]
    ours, fraction = [[1133.0]], 0.0701
    assert told == [
        ([], fraction),  # no wish
        ([], fraction),  # 0.9 asked for
        ([], 0.01),  # less asked for
        (ours, 0),  # no ConfigProto: the context's
        ([], fraction),  # InteractiveSession makes its own
        ([], fraction),  # the context's, with a fraction on top
        ([[849.0, 283.0]], 0),  # logical devices of its own
    ]
    assert all(each["growth"] for each in ran.records if each["fraction"])


def test_a_session_whose_wish_is_lowered_is_mentioned_in_the_log(run_script: RunScript) -> None:
    ran = run_script("sessions.py")
    assert "per_process_gpu_memory_fraction = 0.9 is lowered to this process's 0.0701" in ran.err
    assert "logical devices of 4000 MiB are shrunk to this process's 1133 MiB" in ran.err
    assert "0.01 is lowered" not in ran.err


def test_the_explicit_call_works_where_no_hook_runs_and_says_when_it_comes_too_late(run_script: RunScript) -> None:
    ran = run_script("-I", "late.py", str(HERE.parent.parent))
    assert ran.code == 0, ran.err
    assert "done" in ran.out


def test_a_replica_forked_from_a_process_that_preloaded_tensorflow_gets_its_own_limit(
    run_script: RunScript, environment: dict[str, str]
) -> None:
    path = os.pathsep.join([environment["PYTHONPATH"], str(HERE.parent.parent)])
    env = {name: value for name, value in environment.items() if not name.startswith("GPUSCHED_")}
    ran = run_script("forked.py", env=env | {"PYTHONPATH": path})
    assert ran.code == 0, ran.err
    assert [told["devices"] for told in ran.records] == [[[256]]]
