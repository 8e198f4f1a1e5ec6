"""A real systemd as PID 1 of a machine of its own: systemd-nspawn over a throw-away overlay of this host's files.

Its mounts and processes are in namespaces that this process started, so nothing of it is left when that ends. What is
written there goes to memory and is gone too.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.patience import PATIENCE_S, until

ROOT: Final = Path(__file__).parents[2]

_BOOT: Final = """
mount -t tmpfs -o size=1g tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
cd "$1/root"
etc=etc/systemd/system
rm -rf $etc/*.wants usr/sbin/policy-rc.d
: >etc/fstab
: >etc/machine-id
ln -sfn /lib/systemd/system/multi-user.target $etc/default.target
for service in systemd-networkd-wait-online getty@ console-getty systemd-resolved systemd-timesyncd; do
  ln -sf /dev/null $etc/$service.service
done
name=$2
shift 2
for cgroup in "$@"; do
  [ "$cgroup" != -- ] || break
  if mkdir "$cgroup"; then echo 0 >"$cgroup/cgroup.procs"; fi
  shift
done
shift
exec systemd-nspawn --quiet --directory="$PWD" --boot --register=no --keep-unit --machine="$name" --private-network \
  --console=pipe --kill-signal=SIGRTMIN+3 "$@"
"""
_NSENTER: Final = ("nsenter", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not() -> str | None:
    """Return why no systemd can be booted here, None if it can."""
    missing = [name for name in ("systemd-nspawn", "nsenter", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"not installed here: {', '.join(missing)} (Debian: systemd-container)"
    if os.geteuid() != 0:
        return "booting a systemd needs root"
    hidden = [str(path) for path in needed_paths() if any(path.is_relative_to(fresh) for fresh in ("/tmp", "/run"))]
    if hidden:
        return f"{hidden[0]} lies where a booted systemd, and a unit with PrivateTmp, have a directory of their own"
    with tempfile.TemporaryDirectory() as folder:
        script = (
            'mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir u w r; mount -t overlay -o lowerdir=/,upperdir=u,workdir=w o r'
        )
        argv = ["unshare", "--mount", "--propagation=private", "sh", "-euc", script, "sh", folder]
        tried = subprocess.run(argv, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"no overlay can be mounted here: {tried.stderr.strip()}"


class Machine:
    """The machine, from construction to `stop`. Its console goes to a file in `folder`, which must be empty."""

    def __init__(self, folder: Path) -> None:
        self._console = folder / "console.log"
        self._name = f"gpusched-{os.getpid()}"
        self._cgroups = [place / self._name for place in _cgroup_places()]
        base = folder / "machine"
        base.mkdir()
        argv = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private"]
        argv += ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-euc", _BOOT, "sh", str(base)]
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                [*argv, self._name, *map(str, self._cgroups), "--", *_binds()],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._until_it_runs()
        except BaseException:
            self.stop()
            raise

    @property
    def root(self) -> Path:
        """Its file system, as seen from here."""
        return Path(f"/proc/{self._leader()}/root")

    def run(
        self, *argv: str, user: str = "", env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> str:
        """Run a command there, as root or `user`, and return what it printed; it must succeed."""
        told = self.attempt(*argv, user=user, env=env, patience_s=patience_s)
        assert told.returncode == 0, f"{argv}: {told.returncode}\n{told.stdout}{told.stderr}"
        return told.stdout

    def attempt(
        self, *argv: str, user: str = "", env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command there, as root or `user`, and return how that went."""
        found: dict[str, str] = {"PATH": _PATH, "HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8", "SYSTEMD_PAGER": ""}
        words = list(argv)
        if user:
            uid = self.uid(user)
            found |= {"HOME": f"/home/{user}", "USER": user, "XDG_RUNTIME_DIR": f"/run/user/{uid}"}
            found["PATH"] = f"/home/{user}/.local/bin:{_PATH}"
            words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--init-groups", *words]
        told = [f"{name}={value}" for name, value in (found | dict(env or {})).items()]
        return subprocess.run(
            [*_NSENTER, f"--target={self._leader()}", "--", "env", "-i", *told, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )

    def uid(self, user: str) -> int:
        """Return the number of a user of the machine."""
        lines = (self.root / "etc/passwd").read_text().splitlines()
        return int(next(line.split(":")[2] for line in lines if line.startswith(f"{user}:")))

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file there."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def stop(self) -> None:
        """End it at once, with all that runs in it."""
        with contextlib.suppress(AssertionError, ProcessLookupError):
            os.kill(self._leader(), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._nspawn.wait(PATIENCE_S)
        self._nspawn.kill()
        self._nspawn.wait()
        for top in self._cgroups:
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):  # one that ends just now is still in it
                    Path(path).rmdir()

    def _leader(self) -> int:
        """Return the pid, here, of the machine's PID 1: the child of systemd-nspawn, which is that of unshare."""
        found = self._nspawn.pid
        for name in ("systemd-nspawn", "systemd"):
            below = psutil.Process(found).children() if self._nspawn.poll() is None else []
            assert [one.name() for one in below[:1]] == [name], self._console.read_text(errors="replace")[-3000:]
            found = below[0].pid
        return int(found)

    def _until_it_runs(self) -> None:
        def is_up() -> bool:
            assert self._nspawn.poll() is None, self._console.read_text(errors="replace")[-3000:]
            with contextlib.suppress(AssertionError, psutil.NoSuchProcess):
                return self.attempt("systemctl", "is-system-running", "--wait").stdout.strip() in {
                    "running",
                    "degraded",
                }
            return False

        until(is_up, "the machine has booted")


def needed_paths() -> list[Path]:
    """Return the directories without which gpusched, as it runs here, does not run."""
    return [ROOT, Path(sys.prefix), Path(sys.base_prefix)]


def _cgroup_places() -> list[Path]:
    """Return this process's cgroups of the hierarchies that a systemd writes to.

    Each machine has one of its own within them: two that shared one would take each other's units for theirs.
    """
    places = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, hierarchy, path = line.split(":", 2)
        for mounted in {"": ("", "unified"), "name=systemd": ("systemd",)}.get(hierarchy, ()):
            place = Path("/sys/fs/cgroup", mounted, path.lstrip("/"))
            if os.access(place / "cgroup.procs", os.W_OK):
                places[hierarchy] = place
    return list(places.values())


def _binds() -> list[str]:
    """Return what brings in the directories that lie on another file system than /."""
    apart = [path for path in needed_paths() if path.stat().st_dev != Path("/").stat().st_dev]
    return [f"--bind-ro={path}" for path in apart]


def open_the_way(machine: Machine) -> None:
    """Let every user of the machine reach the directories that gpusched runs from."""
    for path in needed_paths():
        for one in (path, *path.parents):
            seen = machine.root / str(one).lstrip("/")
            if not seen.stat().st_mode & stat.S_IXOTH:
                seen.chmod(seen.stat().st_mode | stat.S_IXOTH)
