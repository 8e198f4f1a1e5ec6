"""Two people on one host: real user ids, each with a daemon, a shared lease directory and the same stand-in devices.

The interpreter of the tests may lie where only its owner can go, such as below /root: in a mount namespace of theirs
these users see its directories, and nothing else, at the same place.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.cli.command import Command
from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
TOKEN: Final = "a-secret-of-"
_OPEN: Final = """
place=$1; shut=$2; shift 2
number=0
for path; do
  number=$((number + 1)); mkdir "$place/$number"; mount --rbind "$path" "$place/$number"
done
[ -z "$shut" ] || mount -t tmpfs -o mode=755 tmpfs "$shut"
number=0
for path; do
  number=$((number + 1)); mkdir -p "$path"; mount --move "$place/$number" "$path"
done
echo open
exec sleep infinity
"""


class User(Command):
    """Somebody with the user id `uid`, who types commands in a shell with this umask."""

    def __init__(self, uid: int, home: Path, env: dict[str, str], *, space: int, umask: int) -> None:
        home.mkdir()
        super().__init__(home, env)
        os.chown(home, uid, uid)
        home.chmod(0o755)  # what is private is so by its own mode
        self.uid, self._umask = uid, umask
        self.secret = f"{TOKEN}{uid}"
        self.env |= {"TOKEN": self.secret}
        self._prefix = ["nsenter", f"--target={space}", "--mount", "setpriv", f"--reuid={uid}", f"--regid={uid}"]
        self._prefix += ["--clear-groups", "--"]

    def run(self, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._prefix, sys.executable, "-m", "gpusched", *arguments],
            capture_output=True,
            text=True,
            env=self.env,
            cwd="/",
            umask=self._umask,
            timeout=PATIENCE_S,
            check=False,
            **options,
        )

    def told(self, *arguments: str) -> Any:
        """Return the JSON that a command prints, which must succeed."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def submit(self, *options: str) -> str:
        """Queue a command that goes on until it is stopped."""
        command = ("sh", "-c", "echo its output; exec sleep 1000")
        done = self.run("run", "--detach", "--json", *options, "--", *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["id"])

    def see(self, job: str) -> Any:
        return next(one for one in self.told("ps")["jobs"] if one["id"] == job)

    def runs(self, job: str) -> bool:
        return [one["state"] for one in self.see(job)["replicas"]] == ["running"]

    def files(self) -> list[Path]:
        """Return all files and directories that gpusched has made for this user."""
        return sorted(path for path in self.home.rglob("*") if not path.is_symlink())


def why_not() -> str | None:
    """Return why there cannot be two users here, None if there can."""
    missing = [name for name in ("unshare", "nsenter", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"not installed here: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "only root can be several users"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no mount namespace can be made here: {tried.stderr.strip()}"


@contextmanager
def space_for_all(place: Path) -> Iterator[int]:
    """Give the pid of a process in whose mount namespace every user can run what runs here. `place` is empty."""
    needed = sorted({ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})
    shut = {one for path in needed for one in path.parents if not one.stat().st_mode & 0o001}
    outermost = min(shut, key=lambda one: len(one.parts), default=None)
    hidden = [str(path) for path in needed if outermost in path.parents] if outermost else []
    argv = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private", "sh", "-euc", _OPEN, "sh"]
    with subprocess.Popen([*argv, str(place), str(outermost or ""), *hidden], stdout=subprocess.PIPE, text=True) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline() == "open\n"
            yield one.pid
        finally:
            one.send_signal(signal.SIGKILL)
