"""What a host is told of a job, and whether it has the same code."""

from pathlib import Path

import msgspec

from gpusched.joining.invitation import (
    Invitation,
    differences,
    invitation,
    read_invitation,
    write_invitation,
)

HERE = Invitation(
    job="a", workload="snake", options="{}", files={"play.py": "1", "learner.py": "2"}, versions={"python": "3.12"}
)


def changed(**changes: object) -> Invitation:
    return msgspec.structs.replace(HERE, **changes)


def test_what_was_left_is_what_is_read(tmp_path: Path) -> None:
    assert read_invitation(tmp_path) is None
    write_invitation(tmp_path, HERE)
    assert read_invitation(tmp_path) == HERE
    (tmp_path / "invitation.json").write_text("{")
    assert read_invitation(tmp_path) is None


def test_the_same_code_has_no_differences(tmp_path: Path) -> None:
    for where in ("a", "b"):
        (tmp_path / where / "parts").mkdir(parents=True)
        (tmp_path / where / "workload.toml").write_text("x")
        (tmp_path / where / "parts" / "play.py").write_text("y")
    told, ours = (invitation("job", "snake", tmp_path / where / "workload.toml", b"{}") for where in "ab")
    assert sorted(told.files) == ["parts/play.py", "workload.toml"]
    assert {"gpusched", "python", "numpy"} <= told.versions.keys()
    assert differences(told, ours) == []
    (tmp_path / "b" / "parts" / "play.py").write_text("z")
    ours = invitation("job", "snake", tmp_path / "b" / "workload.toml", b"{}")
    assert differences(told, ours) == ["parts/play.py differs"]


def test_what_workloads_share_is_compared_too(tmp_path: Path) -> None:
    for where in ("a", "b"):
        for name in ("snake", "common"):
            (tmp_path / where / name).mkdir(parents=True)
        (tmp_path / where / "snake" / "workload.toml").write_text("x")
        (tmp_path / where / "common" / "weights.py").write_text(where)
    told, ours = (invitation("job", "snake", tmp_path / where / "snake" / "workload.toml", b"{}") for where in "ab")
    assert differences(told, ours) == ["../common/weights.py differs"]


def test_of_very_many_files_one_that_has_another_name_is_a_difference(tmp_path: Path) -> None:
    for where in ("a", "b"):
        (tmp_path / where).mkdir()
        (tmp_path / where / "workload.toml").write_text("x")
        for number in range(401):
            (tmp_path / where / f"{number:03}.py").touch()
    (tmp_path / "b" / "400.py").rename(tmp_path / "b" / "4000.py")
    told, ours = (invitation("job", "snake", tmp_path / where / "workload.toml", b"{}") for where in "ab")
    assert differences(told, ours) == ["one of 402 files differs"]


def test_each_difference_is_named() -> None:
    assert differences(HERE, changed(versions={"python": "3.11"})) == ["python is 3.12 there and 3.11 here"]
    assert differences(HERE, changed(versions={"python": "3.12", "keras": "3"})) == [
        "keras is not installed there and 3 here"
    ]
    assert differences(HERE, changed(files={"learner.py": "2", "more.py": "3"})) == [
        "more.py is here only",
        "play.py is there only",
    ]
    assert differences(HERE, changed(job="b", options="[]")) == []


def test_a_job_without_a_workload_file_tells_of_versions_only() -> None:
    assert invitation("job", "run", None, b"{}").files == {}
