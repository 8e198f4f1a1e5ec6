"""The host of a soak: its directories, a state directory that can be filled, a wall clock that can be stepped."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from tests.soak.gpus import Gpus
from tests.soak.processes import daemon_pid
from tests.stand_in.clock import WallClock

__all__ = ["Host"]

SIZE: Final = 6 << 30
INODES: Final = 2_000_000


class Host:
    """Everything below `root`. `can_fill`: the state directory is a tmpfs of the soak."""

    def __init__(self, root: Path, *, can_mount: bool) -> None:
        self.root, self.home = root, root / "home"
        self.state, self.runtime, self.leases = self.home / "state", self.home / "run", self.home / "leases"
        self.work, self.output = root / "work", root / "output"
        for folder in (self.home, self.work, self.output):
            folder.mkdir()
        self.state.mkdir(mode=0o700)
        self.leases.mkdir(mode=0o777)
        self.leases.chmod(0o1777)
        self.ledger = root / "ledger"
        self.ledger.touch()
        self.gpus = Gpus(root / "library")
        self.can_fill = can_mount and self._mount()
        self.clock = WallClock(root)
        self.env = self._environment()

    def fill(self, what: str) -> None:
        """Leave a few KiB of disk, or a few inodes, in the state directory; "" gives all back."""
        for margin in (4, 16, 64, 256, 1024):  # more may be used by now than there was a moment ago
            about = os.statvfs(self.state)
            size = (about.f_blocks - about.f_bfree + margin) * about.f_frsize if what == "disk" else SIZE
            inodes = about.f_files - about.f_ffree + margin if what == "inodes" else INODES
            options = f"remount,size={size},nr_inodes={inodes}"
            done = subprocess.run(["mount", "-o", options, str(self.state)], check=False, capture_output=True)
            if done.returncode == 0:
                return
        raise OSError(f"{self.state} cannot be made full: {done.stderr.decode()}")

    def toy(self, name: str, replicas: int, script: str, *, restarts: int = 2, memory: bool = True) -> Path:
        """Write a workload of shell processes, and return its file."""
        path = self.work / f"{name}.toml"
        needs = 'memory = { min = "512MiB" }\n' if memory else ""
        path.write_text(
            f'name = "toy"\n[roles.actor]\ncount = {replicas}\n{needs}command = ["sh", "-c", {json.dumps(script)}]\n'
            f'restart = {{ policy = "on-failure", max = {restarts} }}\n[job]\nstop_grace = 2\n'
        )
        return path

    def daemon_pid(self) -> int:
        return daemon_pid(self.state)

    def remove(self) -> None:
        """Unmount and remove all of it."""
        if self.can_fill:
            deadline = time.monotonic() + 10
            while subprocess.run(["umount", str(self.state)], check=False, capture_output=True).returncode:
                if time.monotonic() > deadline:
                    subprocess.run(["umount", "-l", str(self.state)], check=False, capture_output=True)
                    break
                time.sleep(0.1)
        shutil.rmtree(self.root, ignore_errors=True)

    def _mount(self) -> bool:
        options = f"size={SIZE},nr_inodes={INODES},mode=0700"
        argv = ["mount", "-t", "tmpfs", "-o", options, "soak", str(self.state)]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def _environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("GPUSCHED_", "XDG_", "CUDA_"))}
        env |= {"GPUSCHED_STATE_DIR": str(self.state), "GPUSCHED_RUNTIME_DIR": str(self.runtime)}
        env |= {"GPUSCHED_LEASE_DIR": str(self.leases), "HOME": str(self.home), "SOAK_ROOT": str(self.root)}
        env |= self.gpus.host.variables
        env |= {"SOAK_LEDGER": str(self.ledger), "TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(self.work)}
        return env | self.clock.env
