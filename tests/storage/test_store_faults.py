"""A database that cannot be used is told of and left as it is."""

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpusched.errors import HostFault
from gpusched.storage.store import Store
from gpusched.storage.tables import APPLICATION_ID, VERSION
from tests.patience import PATIENCE_S
from tests.stand_in.library import ROOT
from tests.storage.records import ended, queued

STORE = ROOT / "tests" / "children" / "store.py"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with some jobs in it, closed."""
    path = tmp_path / "gpusched.db"
    store = Store.open(path)
    with store.transaction():
        for number in range(1, 301):
            store.add(ended(number) if number % 3 else queued(number, HOME="/home/ada"))
    store.close()
    return path


def refused(path: Path) -> HostFault:
    with pytest.raises(HostFault) as told:
        Store.open(path)
    assert told.value.hint
    return told.value


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def altered(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311 (no secret)


def random_bytes(path: Path) -> None:
    path.write_bytes(noise(1, path.stat().st_size))


def header_only(path: Path) -> None:
    os.truncate(path, 100)


def first_page_only(path: Path) -> None:
    os.truncate(path, 4096)


def last_page_lost(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def torn(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1000)


def pages_overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        for page in range(2, path.stat().st_size // 4096, 3):
            file.seek(4096 * page)
            file.write(noise(page, 4096))


def a_text(path: Path) -> None:
    path.write_text("jobs: none\n" * 1000)


def log_without_its_database(path: Path) -> None:
    path.unlink()
    path.with_name("gpusched.db-wal").write_bytes(b"x" * 5000)


@pytest.mark.parametrize(
    "damage",
    [random_bytes, header_only, first_page_only, last_page_lost, torn, pages_overwritten, a_text,
     log_without_its_database],
)  # fmt: skip
def test_a_damaged_file_is_told_of_and_left_as_it_is(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = content(path.parent)
    error = refused(path)
    assert "is damaged, and was left as it is" in error.message
    assert "running jobs go on" in error.hint
    after = content(path.parent)
    assert {name: after[name] for name in before} == before


def test_a_damaged_record_is_told_of_when_it_is_read(path: Path) -> None:
    altered(path, "UPDATE jobs SET record = CAST(x'00' || substr(record, 2) AS BLOB) WHERE id = 'run-1'")
    store = Store.open(path)
    with pytest.raises(HostFault, match="is damaged"):
        store.job("run-1")
    assert store.job("run-2") is not None
    store.close()


def test_whatever_bytes_are_wrong_it_is_a_damaged_file_or_a_sound_one(path: Path) -> None:
    whole, chance = path.read_bytes(), random.Random(3)  # noqa: S311 (no secret)
    for seed in range(500):
        wrong = bytearray(whole)
        place = chance.randrange(len(whole) - 8)
        wrong[place : place + 8] = noise(seed, 8)
        path.write_bytes(wrong)
        with contextlib.suppress(HostFault):
            store = Store.open(path)
            with contextlib.suppress(HostFault):
                store.live()
                store.ended(1000)
            store.close()


def test_a_directory_in_its_place_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "gpusched.db").mkdir()
    assert "is no file" in refused(tmp_path / "gpusched.db").message


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    """It is what a daemon leaves that is killed as it begins for the first time."""
    (tmp_path / "gpusched.db").touch()
    store = Store.open(tmp_path / "gpusched.db")
    store.add(queued(1))
    store.close()


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    altered(path, "CREATE TABLE songs (name TEXT)")
    before = content(tmp_path)
    assert "is another program's database" in refused(path).message
    assert content(tmp_path) == before


@pytest.mark.parametrize("version", [2, 8])
def test_another_version_is_refused_and_left_as_it_is(path: Path, version: int) -> None:
    altered(path, f"PRAGMA user_version = {version}")
    before = content(path.parent)
    error = refused(path)
    assert f"was written by another gpusched (its form is {version}, this one knows {VERSION})" in error.message
    assert "start that gpusched" in error.hint
    assert content(path.parent) == before


def test_a_place_that_cannot_be_written_is_told_of() -> None:
    assert "running jobs go on" in refused(Path("/proc/gpusched.db")).hint


def test_a_second_process_is_told_that_the_database_is_in_use_until_the_first_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "gpusched.db"
    with subprocess.Popen([sys.executable, str(STORE), "hold", str(path)], cwd=ROOT, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"open\n"
        assert "is in use by another process" in refused(path).message
        first.kill()
    store = Store.open(path)
    assert store.known_ids() == ["run-1"]
    store.close()


def add_many(store: Store, first: int, *, together: bool) -> None:
    """Add a thousand jobs of different, long environments."""
    with store.transaction() if together else contextlib.nullcontext():
        for number in range(first, first + 1000):
            store.add(queued(number, LONG=noise(number, 1000).hex()))


def test_after_a_write_that_found_no_room_the_next_one_succeeds(path: Path) -> None:
    store = Store.open(path)
    pages = store._database.number("PRAGMA page_count")
    store._database.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(HostFault, match="the disk is full"):
        add_many(store, 1000, together=True)
    assert len(store.known_ids()) == 300
    store._database.run(f"PRAGMA max_page_count = {2 * pages}")
    store.add(queued(1000))
    assert len(store.known_ids()) == 301
    store.close()


def test_nothing_is_written_of_a_transaction_whose_failure_was_not_heeded(path: Path) -> None:
    store = Store.open(path)
    store._database.run(f"PRAGMA max_page_count = {store._database.number('PRAGMA page_count')}")

    def heedless() -> None:
        with store.transaction():
            for first in (1000, 2000):
                with contextlib.suppress(HostFault):
                    add_many(store, first, together=False)

    with pytest.raises(HostFault):
        heedless()
    assert len(store.known_ids()) == 300
    store.close()


def on_tiny_disk(script: str, folder: Path) -> str:
    """Run a shell script in `folder`, which is a file system of 1 MiB that nobody else sees."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here, not even in a user namespace (unshare -rm)")
    text = f"mount -t tmpfs -o size=1m tmpfs {folder} && {script}"
    told = subprocess.run(
        ["unshare", "-rm", "sh", "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def test_a_disk_that_was_full_is_written_again_once_it_has_room(tmp_path: Path) -> None:
    child, path = f"{sys.executable} {STORE}", tmp_path / "gpusched.db"
    told = on_tiny_disk(f"head -c 300000 /dev/zero > {tmp_path}/filler; {child} fill {path}", tmp_path).splitlines()
    assert "the disk is full" in told[0]
    assert told[1:] == ["0 0", "1"], "whole transactions only, and then one job more"


def test_a_full_or_read_only_disk_is_told_of_when_the_database_is_opened(tmp_path: Path) -> None:
    child, path = f"{sys.executable} {STORE}", tmp_path / "gpusched.db"
    told = on_tiny_disk(f"cat /dev/zero > {tmp_path}/filler 2>/dev/null; {child} refuse {path}", tmp_path)
    assert "the disk is full" in told
    told = on_tiny_disk(f"mount -o remount,ro {tmp_path} && {child} refuse {path}", tmp_path)
    assert "Read-only file system" in told


def test_a_record_of_an_older_daemon_lacks_fields_and_is_read(path: Path) -> None:
    store = Store.open(path)
    job = queued(3)
    known = {key: value for key, value in msgspec.to_builtins(job).items() if key in ("id", "run_dir", "created")}
    store._database.run("UPDATE jobs SET record=? WHERE id='run-3'", (_packed({**known, "forgotten": 1}),))
    found = store.job("run-3")
    assert found is not None
    assert (found.id, found.submission, found.last) == ("run-3", None, None)
    store.close()


def _packed(value: object) -> bytes:
    import zlib

    return zlib.compress(msgspec.msgpack.encode(value))


def test_the_file_says_whose_it_is(path: Path) -> None:
    assert path.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4, "big") == b"gpus"
