"""Somebody with an account on the machine, whose daemon runs as a unit."""

import json
from typing import Any, ClassVar, Final

from tests.patience import until
from tests.systemd.machine import Machine

_WAITS: Final = "echo $$ >~/pid; trap 'echo ended in order; exit 7' TERM; sleep 1000 & wait"


class Person:
    """One user of the machine. `unit`: that of the daemon, `gpusched@NAME` of the system or `gpusched` of the user."""

    DEVICES: ClassVar = {"LD_LIBRARY_PATH": "/opt/stand-in", "NVML_STAND_IN": "/opt/stand-in/scenario"}

    def __init__(self, machine: Machine, name: str, unit: str) -> None:
        self.machine, self.name, self.unit = machine, name, unit

    def run(self, *argv: str) -> str:
        """Run a command in a shell of this user's and return what it printed; it must succeed."""
        return self.machine.run(*argv, user=self.name, env=self.DEVICES)

    def gpusched(self, *arguments: str) -> str:
        return self.run("gpusched", *arguments)

    def systemctl(self, *arguments: str) -> str:
        """Speak to the service manager that runs the daemon, as the one who may."""
        if "@" in self.unit:
            return self.machine.run("systemctl", *arguments)
        return self.run("systemctl", "--user", *arguments)

    def property(self, name: str) -> str:
        """Return what systemd knows of the daemon's unit."""
        return self.systemctl("show", "--value", f"--property={name}", self.unit).strip()

    def daemon(self) -> int:
        """Return the daemon's pid in the machine."""
        return int(self.property("MainPID"))

    def until_replaced(self, daemon: int) -> None:
        """Wait until another daemon serves than the one of that pid."""
        until(
            lambda: self.daemon() not in {0, daemon} and self.property("ActiveState") == "active",
            f"another daemon than {daemon} serves",
        )

    def journal(self) -> str:
        """Return what the journal has of the daemon and of the service manager that runs it."""
        own = f"--unit={self.unit}" if "@" in self.unit else f"_UID={self.machine.uid(self.name)}"
        return self.machine.run("journalctl", own, "--output=cat", "--no-pager")

    def submit(self, *options: str, command: str = _WAITS) -> str:
        """Queue a command, by default one that goes on until it is stopped; return the id of its job."""
        told = self.gpusched("run", "--detach", "--json", *options, "--", "sh", "-c", command)
        return str(json.loads(told)["id"])

    def jobs(self) -> dict[str, Any]:
        """Return what `gpusched ps --json` tells, by id."""
        return {one["id"]: one for one in json.loads(self.gpusched("ps", "--json"))["jobs"]}

    def until_state(self, job: str, *states: str) -> Any:
        until(lambda: self.jobs()[job]["state"] in states, f"{job} is {' or '.join(states)}")
        return self.jobs()[job]

    def until_runs(self, job: str) -> int:
        """Wait until the job's command runs and return its pid in the machine."""
        until(lambda: [one["state"] for one in self.jobs()[job]["replicas"]] == ["running"], f"{job} runs")
        return int(self.jobs()[job]["replicas"][0]["pid"])

    def lives(self, pid: int) -> bool:
        return (self.machine.root / f"proc/{pid}").exists()

    def job_unit(self, job: str) -> str:
        """Return the name of the unit in which a job runs; empty if there is none."""
        told = self.run("systemctl", "--user", "list-units", "--plain", "--no-legend", f"gpusched-{job}-*")
        return told.split()[0] if told.strip() else ""

    def start(self) -> None:
        try:
            self.systemctl("start", self.unit)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.journal()}") from None

    def end(self) -> None:
        """Stop all that is left of jobs, and the daemon."""
        self.machine.attempt("systemctl", "--user", "stop", "gpusched-*", user=self.name)
        self.systemctl("stop", self.unit)
        self.machine.attempt("systemctl", "reset-failed")
        self.run("sh", "-c", "rm -rf ~/.local/state/gpusched/*")
