"""A launch on a full disk says where there is no room, and leaves nothing half made."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command

MACHINE = "1x16GiB"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Command]:
    """The command line with its state on a disk of 64 files and 256 KiB."""
    command = Command(tmp_path)
    command.state.mkdir(mode=0o700)
    options = "size=256k,nr_inodes=64,mode=700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(command.state)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield command
    command.end()
    subprocess.run(["umount", "-l", str(command.state)], check=True)


def leave_files(state: Path, count: int) -> None:
    """Leave room for so many more files."""
    place = state / "ballast"
    place.mkdir(exist_ok=True)
    while os.statvfs(state).f_favail > count:
        (place / os.urandom(4).hex()).touch()
    while os.statvfs(state).f_favail < count:
        next(place.iterdir()).unlink()


def leave_blocks(state: Path, count: int) -> None:
    """Leave room for so many blocks of 4 KiB."""
    about = os.statvfs(state)
    free = (about.f_bavail * about.f_bsize) // 4096
    ballast = state / "ballast-file"
    used = ballast.stat().st_size if ballast.exists() else 0
    with ballast.open("ab") as file:
        file.truncate(max(0, used - 4096 * max(0, count - free)))
        file.write(b"x" * 4096 * max(0, free - count))


@pytest.mark.slow
@pytest.mark.parametrize("leave", [leave_files, leave_blocks])
def test_no_half_made_job_directory_stays_and_the_error_names_a_directory(
    small: Command, leave: Callable[[Path, int], None]
) -> None:
    jobs = small.state / "jobs"
    jobs.mkdir(mode=0o700)
    (small.state / "simulated-leases").mkdir(mode=0o700)
    toy = small.toy("ends.py")
    failures = 0
    for room in range(30):
        leave(small.state, room)
        done = small.run("launch", toy, "--machine", MACHINE, "--json")
        told = json.loads(done.stdout)
        if "error" not in told:
            break
        failures += 1
        assert done.returncode == 5, told
        assert str(small.state) in told["error"]["message"], told
        assert re.search("No space left on device|hardly any room left", told["error"]["message"]), told
        left = [json.loads((one / "status.json").read_text())["state"] for one in jobs.iterdir()]
        assert left in ([], ["failed"]), (room, told)
        for one in jobs.iterdir():
            shutil.rmtree(one)
        assert [one for one in (small.state / "simulated-leases").iterdir() if one.name != "lock"] == []
    assert failures > 2, "there was too little room to start with"
