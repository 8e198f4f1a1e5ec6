"""`rm` and `prune`: jobs that have ended are removed with their directories, and nothing else is."""

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusched.api import history
from gpusched.api.history import Removal, remove
from gpusched.cli.queue_answers import print_removal
from gpusched.control.messages import Remove, Removed, Request
from gpusched.execution.daemon_link import Link
from gpusched.execution.directory import GUARD_LOCK, create
from gpusched.execution.removed import delete_removed, removed_id
from gpusched.linux.file_locks import is_held, lock
from gpusched.settings import Settings, load_settings
from tests.cli.command import Command
from tests.patience import until
from tests.supervisor.leasing import NOBODY, as_user, for_all_users

CPU = ("--num-gpus", "0")


def over(command: Command, *words: str, script: str = "true") -> str:
    job = command.run("run", "-d", *CPU, *words, "--", "sh", "-c", script).stdout.strip()
    command.run("wait", job)
    return job


def all_ids(command: Command) -> list[str]:
    return [job["id"] for job in json.loads(command.run("ps", "--all", "--json").stdout)["jobs"]]


def directory(command: Command, job: str) -> Path:
    return command.state / "jobs" / job


def leftovers(command: Command) -> list[str]:
    return [one.name for one in (command.state / "removed").iterdir()]


def test_a_job_that_has_ended_is_removed_with_its_directory_and_its_id_is_not_used_again(command: Command) -> None:
    first, second = over(command), over(command, "--name", "train")
    told = command.run("rm", "train", first)
    assert (told.returncode, told.stdout) == (0, f"{second} is removed\n{first} is removed\n")
    assert (all_ids(command), directory(command, first).exists(), leftovers(command)) == ([], False, [])
    assert command.run("logs", first).returncode == 4
    os.kill(command.daemon(), 9)
    assert over(command) == "run-3"


def test_a_job_whose_guard_is_about_to_end_is_removed_when_it_has(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, other = over(command), over(command)
    asked: list[tuple[str, ...]] = []
    honest = Link.ask
    until(lambda: not is_held(directory(command, ending) / GUARD_LOCK), "its own guard has ended")

    with (directory(command, ending) / GUARD_LOCK).open("ab") as guard:
        assert lock(guard.fileno(), 0)

        def ask(link: Link, request: Request, kind: type[Any]) -> Any:
            answer = honest(link, request, kind)
            if isinstance(request, Remove):
                asked.append(request.ids)
                guard.close()
            return answer

        monkeypatch.setattr(Link, "ask", ask)
        removal = remove([ending, other], settings=load_settings(command.env))

    assert (sorted(removal.ids), removal.kept) == ([ending, other], {})
    assert asked == [(ending, other), (ending,)]


def test_a_job_whose_guard_does_not_end_stays(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    job = over(command)
    monkeypatch.setattr(history, "_ENDING_S", 0.2)
    until(lambda: not is_held(directory(command, job) / GUARD_LOCK), "its own guard has ended")
    with (directory(command, job) / GUARD_LOCK).open("ab") as guard:
        assert lock(guard.fileno(), 0)
        removal = remove(job, settings=load_settings(command.env))

    assert (removal.ids, dict(removal.kept)) == ((), {job: "a process of it still lives"})


def test_what_lives_or_is_followed_stays(command: Command) -> None:
    done = over(command)
    lives = command.run("run", "-d", *CPU, "--", "sleep", "600").stdout.strip()
    waits = command.run("run", "-d", *CPU, "--hold", "--after", done, "--", "true").stdout.strip()
    told = command.run("rm", done, lives, waits)
    assert (told.returncode, told.stdout) == (1, "")
    assert f"{done} stays: {waits} is to follow it" in told.stderr
    assert f"{lives} stays: it is " in told.stderr
    assert f"{waits} stays: it is queued" in told.stderr
    assert sorted(all_ids(command)) == sorted([done, lives, waits])
    told = command.run("rm", "run-*")  # a glob means those that have ended
    assert f"{lives} stays" not in told.stderr
    assert directory(command, done).is_dir()


def test_a_directory_that_is_a_link_is_refused_and_what_it_points_to_is_untouched(
    command: Command, tmp_path: Path
) -> None:
    job, treasure = over(command), tmp_path / "treasure"
    directory(command, job).rename(treasure)
    directory(command, job).symlink_to(treasure)
    before = sorted(treasure.rglob("*"))
    told = command.run("rm", job)
    assert (told.returncode, "is a link to another place" in told.stderr) == (1, True)
    assert sorted(treasure.rglob("*")) == before
    assert all_ids(command) == [job]


def test_a_link_within_a_directory_is_not_followed(command: Command, tmp_path: Path) -> None:
    (tmp_path / "treasure").mkdir()
    (tmp_path / "treasure" / "gold").write_text("here")
    job = over(command)
    (directory(command, job) / "data").symlink_to(tmp_path / "treasure")
    assert command.run("rm", job).returncode == 0
    assert (tmp_path / "treasure" / "gold").read_text() == "here"


def test_results_are_kept_where_that_is_asked_for(command: Command) -> None:
    job = over(command)
    (directory(command, job) / "weights.npz").write_text("weights")
    (directory(command, job) / ".hydra").mkdir()
    for ours in ("limits", "memory"):
        (directory(command, job) / ours).mkdir(exist_ok=True)
    (command.state / "results" / job).mkdir(parents=True)  # of an earlier try
    assert command.run("rm", "--keep-results", job).returncode == 0
    kept = command.state / "results" / f"{job}.2"
    assert (sorted(one.name for one in kept.iterdir()), (kept / "weights.npz").read_text()) == (
        [".hydra", "weights.npz"],
        "weights",
    )
    assert not directory(command, job).exists()


def test_prune_removes_what_ended_before_and_no_job_that_lives(command: Command) -> None:
    old = [over(command, script=script) for script in ("true", "false", "true")]
    time.sleep(0.01)
    lives = command.run("run", "-d", *CPU, "--", "sleep", "600").stdout.strip()
    assert command.run("prune", "--older", "1h").stdout == "no job that has ended matches\n"
    told = command.run("prune", "--older", "0.001s", "--state", "failed", "--dry-run")
    assert told.stdout == f"{old[1]} would be removed\n"
    assert len(all_ids(command)) == 4
    told = command.run("prune", "--older", "0.001s")
    assert (told.returncode, sorted(told.stdout.split()[::3])) == (0, old)
    assert all_ids(command) == [lives]
    for words, message in (
        (("--older", "soon"), "soon"),
        (("--older", "1h", "--state", "running"), "a job that is running has not ended"),
        (("--older", "1h", "--state", "odd"), "there is no state 'odd'"),
    ):
        told = command.run("prune", *words)
        assert (told.returncode, message in told.stderr) == (2, True), words


def test_what_an_interrupted_removal_left_is_deleted_by_the_next(command: Command) -> None:
    job = over(command)
    (command.state / "removed").mkdir(mode=0o700)
    (command.state / "removed" / "run-9.1764000000000000000").mkdir()
    (command.state / "removed" / "of-somebody").mkdir()
    told = command.run("rm", job, "--json")
    assert json.loads(told.stdout) == {"removed": [job], "kept": {}, "left": []}
    assert leftovers(command) == ["of-somebody"]


@pytest.mark.parametrize("place", ["removed", "results", "jobs"])
def test_what_is_moved_is_never_moved_through_a_link(command: Command, tmp_path: Path, place: str) -> None:
    job, elsewhere = over(command), tmp_path / "elsewhere"
    (directory(command, job) / "weights.npz").write_text("weights")
    elsewhere.mkdir()
    (elsewhere / "thesis").mkdir()
    if place == "jobs":
        (command.state / "jobs").rename(elsewhere / "jobs")
        (command.state / "jobs").symlink_to(elsewhere / "jobs")
    else:
        (command.state / place).symlink_to(elsewhere)
    told = command.run("rm", "--keep-results", job)
    assert (told.returncode, f"{job} stays: " in told.stderr) == (1, True)
    assert (directory(command, job) / "weights.npz").read_text() == "weights"
    assert (elsewhere / "thesis").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user, who may not delete everything")
def test_a_tree_that_cannot_be_deleted_is_reported(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, runtime_dir=tmp_path, lease_dir=tmp_path)
    with for_all_users() as place:
        place.chmod(0o777)
        settings = msgspec.structs.replace(settings, state_dir=place)

        def delete() -> list[str]:
            sealed = place / "removed" / "run-3.1764000000000000000" / "cache"
            sealed.mkdir(parents=True)
            (sealed / "module").touch()
            sealed.chmod(0o555)
            (place / "removed" / "run-4.1764000000000000000").mkdir()
            return list(delete_removed(settings))

        (left,) = as_user(NOBODY, delete)
    assert (Path(left).name, removed_id(left)) == ("run-3.1764000000000000000", "run-3")


def test_what_cannot_be_deleted_is_printed_with_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        print_removal(Removal(("run-3",), {}, ("/s/removed/run-3.17",)), as_json=False)
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (1, "run-3 is removed\n")
    assert "/s/removed/run-3.17 cannot be deleted: chmod -R u+w /s/removed/run-3.17; rm -r" in told.err


def test_a_job_that_is_removed_when_it_is_asked_for_again_counts_as_removed(command: Command) -> None:
    job = over(command)
    with Link(load_settings(command.env)) as link:
        assert link.ask(Remove(ids=(job,)), Removed).ids == (job,)
        again = link.ask(Remove(ids=(job,)), Removed)  # the first answer was lost
    assert (again.ids, again.kept) == ((job,), {})


def test_no_empty_directory_is_kept_of_a_job_that_wrote_nothing(command: Command) -> None:
    job = over(command)
    assert command.run("rm", "--keep-results", job).returncode == 0
    assert list((command.state / "results").iterdir()) == []


def test_no_launch_uses_the_id_of_a_removed_job(command: Command) -> None:
    over(command)
    assert over(command) == "run-2"
    command.run("rm", "run-*")
    assert create(command.state, "run").path.name == "run-3"


def test_a_moment_that_has_not_come_is_no_age(command: Command) -> None:
    job = over(command)
    told = command.run("prune", "--older", "2099-01-01")
    assert (told.returncode, "has not come yet" in told.stderr) == (2, True)
    assert all_ids(command) == [job]
