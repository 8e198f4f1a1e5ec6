"""What tests of leases share: real committers in processes of their own, and other users."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL
from pathlib import Path
from typing import Any

from gpusched.leases.directory import LeaseDirectory
from gpusched.model.lease import Lease
from tests.supervisor.specs import CHILDREN

NOBODY = 65534
SOMEBODY = 65533
_PR_SET_DUMPABLE = 4
_LIBC = CDLL(None)


def share(mib: int, replica: str = "actor.0", device: str = "GPU-a") -> Lease:
    return Lease(device_uuid=device, share_mib=mib, job="snake-1", replica=replica)


def held(directory: LeaseDirectory) -> list[tuple[str, str, int]]:
    return [(lease.replica, lease.device_uuid, lease.share_mib) for lease in directory.read()]


def committer(directory: LeaseDirectory, run_dir: Path, mib: int = 1000) -> "subprocess.Popen[str]":
    """A process of its own that has committed a lease and lives on."""
    process = subprocess.Popen(
        [sys.executable, str(CHILDREN / "commit.py"), str(directory.path), str(run_dir), str(mib)],
        env={**os.environ, "PYTHONPATH": str(CHILDREN.parent.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "committed\n"
    return process


def as_user(uid: int, action: Callable[[], Any]) -> Any:
    """Return what `action` returns (as JSON brings it back) when another user does it; an exception is told as text.

    It runs in a fork, because another user may not be allowed to read the interpreter that is to be started.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told: Any
        try:
            become(uid)
            told = action()
        except Exception as error:  # noqa: BLE001 (the parent looks at it)
            told = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        content = answer.read()
    os.waitpid(child, 0)
    return json.loads(content)


class Fork:
    """Another user's process, which has done something and stays; it is ended with the test."""

    def __init__(self, uid: int, action: Callable[[], object]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                become(uid)
                action()
                os.write(writer, b"done")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        self.told = os.read(reader, 4)
        os.close(reader)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@contextmanager
def for_all_users() -> Iterator[Path]:
    """A directory for all users, as systemd's tmpfiles make it; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        path = Path(place) / "leases"
        path.mkdir()
        path.chmod(0o1777)
        yield path


def become(uid: int) -> None:
    """Be another user for good, one whose /proc entry is its own, as if its program had been started anew."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.environ["HOME"] = "/nonexistent"
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
