"""What a process inherits beside its environment: read here, given there, and told where it cannot be had."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpusched.linux.attributes import apply_attributes, cpus_of_replica, current_attributes
from gpusched.model.job import ProcessAttributes
from tests.patience import until
from tests.supervisor.host import Host
from tests.supervisor.specs import python, replica

HERE = sorted(os.sched_getaffinity(0))


def attributes(**changes: object) -> ProcessAttributes:
    return replace(current_attributes(), **changes)


def test_the_attributes_of_this_process_are_read_and_not_changed() -> None:
    before = os.umask(0o027)
    try:
        found = current_attributes()
        assert (found.umask, found.nice, list(found.cpus)) == (0o027, os.nice(0), HERE)
        assert found.limits["NOFILE"] == resource.getrlimit(resource.RLIMIT_NOFILE)
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_replica_runs_on_the_cpus_of_the_plan_that_its_submitter_may_use() -> None:
    assert cpus_of_replica((1, 2), attributes(cpus=(2, 3))) == {2}
    assert cpus_of_replica((0, 1), attributes(cpus=(2, 3))) == {2, 3}
    assert cpus_of_replica((), attributes(cpus=(2, 3))) == {2, 3}
    assert cpus_of_replica((HERE[0], 4000), None) == {HERE[0]}
    assert cpus_of_replica((4000,), None) == set()


def test_a_replica_gets_them_and_its_supervisor_does_not(host: Host, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    given = attributes(umask=0o027, nice=7, limits={"NOFILE": (soft - 1, hard), "CORE": (0, 0), "UNKNOWN": (1, 1)})
    one = host.start(replica("part.0", python("attributes.py", str(tmp_path / "told.json"))), attributes=given)
    until((tmp_path / "told.json").exists, "the replica has told")
    told = json.loads((tmp_path / "told.json").read_text())

    assert told == {"umask": 0o027, "nice": 7, "nofile": [soft - 1, hard], "core": [0, 0], "cpus": HERE}
    assert resource.prlimit(one.supervisor, resource.RLIMIT_NOFILE) == (soft, hard)
    assert os.getpriority(os.PRIO_PROCESS, one.supervisor) == os.nice(0)


def test_what_a_user_may_not_have_is_named() -> None:
    """As another user, who may lower no nice value and raise no hard limit."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    script = """if True:
        import os, resource
        from msgspec.structs import replace
        from gpusched.linux.attributes import apply_attributes, current_attributes
        apply_attributes(current_attributes())
        wanted = current_attributes()
        wanted = replace(wanted, nice=-5, limits={"NOFILE": (500, 600), "CORE": (-1, -1)})
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
        os.setuid(65534)
        apply_attributes(wanted)
        print(os.nice(0), resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
    """
    root = Path(__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)

    assert told.stderr.splitlines() == [
        "--- the nice value -5 is not allowed here, it is 0 ---",
        "--- a limit NOFILE of 500 is not allowed here, it is 200 ---",
        "--- a limit CORE of unlimited is not allowed here, it is 0 ---",
    ], "and nothing where all is as it was"
    assert told.stdout == "0 (200, 200) (0, 0)\n"


@pytest.mark.parametrize(("least", "nearest"), [(-5, -5), (-20, -10), (0, 0)])
def test_of_a_nice_value_that_is_not_allowed_the_nearest_is_taken(
    least: int, nearest: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """RLIMIT_NICE allows down to 20 less itself (getrlimit(2)); where it may not be raised a test can only claim it."""
    if os.nice(0) != 0:
        pytest.skip("the tests run at another nice value")
    taken: list[int] = []

    def refuse(_which: int, _who: int, nice: int) -> None:
        if nice < least:
            raise PermissionError
        taken.append(nice)

    monkeypatch.setattr(os, "setpriority", refuse)
    apply_attributes(attributes(nice=-10, limits={}))

    told = "" if nearest == -10 else f"--- the nice value -10 is not allowed here, it is {nearest} ---\n"
    assert (taken, capfd.readouterr().err) == ([nearest], told)
