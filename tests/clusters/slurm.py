"""A real Slurm of three nodes on one machine, each in a network namespace: all under one directory, nothing in /etc.

Debian: slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge. Its daemons are ended by pid. The GPUs are device
files of a major number that nobody has: opening one fails with ENXIO where Slurm allows it, with EPERM where not.
"""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.clusters.hosts import LOGIN, Node, free_port, nodes_on_a_bridge
from tests.patience import PATIENCE_S

__all__ = ["Slurm", "slurm_of_three"]

_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "sinfo", "scontrol")
_CONTROLLERS: Final = ("freezer", "devices")
_GPUS: Final = 2
_NOBODYS_MAJOR: Final = 511


class Slurm:
    """The cluster in `base`. `environ` is what a command of Slurm needs to find it.

    `soon`: it gives up nodes within seconds, which on a loaded machine may hit one that is only slow.
    """

    def __init__(self, base: Path, nodes: Sequence[Node], *, soon: bool) -> None:
        self.base, self.nodes, self._soon = base, nodes, soon
        self.environ = {"SLURM_CONF": str(base / "slurm.conf")}

    def run(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        env = os.environ | self.environ
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout

    def start(self) -> None:
        """Start everything, and wait until three nodes are idle."""
        for name in ("log", "run", "state", "spool", "dev"):
            (self.base / name).mkdir()
        for number in range(_GPUS):
            device = self.base / "dev" / f"nvidia{number}"
            os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(_NOBODYS_MAJOR, number))
        self._write_files()
        self._start_munge()
        subprocess.run(["slurmctld", "-c"], env=os.environ | self.environ, check=True)
        for node in self.nodes:
            self.start_node(node)
        self.wait_for_idle(3)

    def start_node(self, node: Node) -> None:
        """Start a node's daemon."""
        (self.base / "spool" / node.name).mkdir(exist_ok=True)
        words = node.command("slurmd", "-N", node.name)
        subprocess.run(words, env=os.environ | self.environ, check=True, timeout=PATIENCE_S)

    def kill_node(self, node: Node) -> None:
        """Kill a node's daemon and all that it runs there, as a power failure would."""
        for pid in node.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_for_idle(self, many: int, patience_s: float = PATIENCE_S) -> None:
        """Wait until so many nodes are idle."""
        deadline = time.monotonic() + patience_s
        while (states := self.run("sinfo", "-h", "-N", "-o", "%T").split()).count("idle") < many:
            assert time.monotonic() < deadline, f"the nodes are {states}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End everything."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--state=RUNNING,PENDING,SUSPENDED", "--user=root")
        for node in self.nodes:
            self.kill_node(node)
        for name in ("slurmctld", "munged"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.base / "run" / f"{name}.pid").read_text()), signal.SIGKILL)
        for controller in _CONTROLLERS:
            for node in self.nodes:
                _remove_cgroups(Path(f"/sys/fs/cgroup/{controller}/slurm_{node.name}"))

    def _start_munge(self) -> None:
        run, key = self.base / "run", self.base / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        words = ["munged", "--force", f"--socket={run / 'munge.sock'}", f"--key-file={key}", "--num-threads=2"]
        files = [f"--pid-file={run / 'munged.pid'}", f"--log-file={self.base / 'log' / 'munged.log'}"]
        subprocess.run([*words, *files, f"--seed-file={run / 'munge.seed'}"], check=True, capture_output=True)

    def _write_files(self) -> None:
        base, contained = self.base, all(Path(f"/sys/fs/cgroup/{one}").is_mount() for one in _CONTROLLERS)
        track, task = ("cgroup", "cgroup") if contained else ("linuxproc", "none")
        yes = "yes" if contained else "no"
        nodes = "\n".join(
            f"NodeName={node.name} NodeAddr={node.address} NodeHostname={node.name} Port={17100 + number} CPUs=64 "
            f"RealMemory=4000 Gres=gpu:v100:{_GPUS}"
            for number, node in enumerate(self.nodes)
        )
        names = ",".join(node.name for node in self.nodes)
        (base / "slurm.conf").write_text(
            f"""ClusterName=test
SlurmctldHost={os.uname().nodename}({LOGIN})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={base}/run/munge.sock
SlurmctldPort={free_port()}
ReturnToService=2
SlurmctldPidFile={base}/run/slurmctld.pid
SlurmdPidFile={base}/run/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/{track}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SlurmctldTimeout=10
SlurmdTimeout={10 if self._soon else 60}
BatchStartTimeout=60
KillWait=5
UnkillableStepTimeout=10
MinJobAge=600
InactiveLimit=0
Waittime=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{nodes}
PartitionName=gpu Nodes={names} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=300
PartitionName=urgent Nodes={names} MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""
        )
        (base / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={names} Name=gpu Type=v100 File={base}/dev/nvidia[0-{_GPUS - 1}]\n"
        )
        (base / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainDevices={yes}\nConstrainCores=no\n"
            "ConstrainRAMSpace=no\n"
        )


@contextlib.contextmanager
def slurm_of_three(base: Path, *, soon: bool) -> Iterator[Slurm]:
    """Yield a running cluster in the directory `base`, or skip with the reason."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs Slurm: there is no {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)")
    with nodes_on_a_bridge() as nodes:
        cluster = Slurm(base, nodes, soon=soon)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def _remove_cgroups(path: Path) -> None:
    for one in sorted((entry for entry in path.rglob("*") if entry.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            one.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()
