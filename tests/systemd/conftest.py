import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stand_in.library import StandIn
from tests.systemd.machine import ROOT, Machine, open_the_way, why_not
from tests.systemd.person import Person

UNITS = ROOT / "systemd"
ONE_DEVICE = "gpus 1\nset * used 0\n"
"""What the stand-in for NVIDIA's library shows in the machine: one V100 of 16 GiB."""


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, stand_in: StandIn) -> Iterator[Machine]:
    """A machine on which gpusched was set up as systemd/README.md says, by an administrator and by bob."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    one = Machine(tmp_path_factory.mktemp("systemd"))
    try:
        open_the_way(one)
        _install(one, stand_in)
        yield one
    finally:
        one.stop()


@pytest.fixture
def alice(machine: Machine) -> Iterator[Person]:
    """A user whose daemon the system runs, sandboxed."""
    yield from _person(machine, "alice", "gpusched@alice")


@pytest.fixture
def bob(machine: Machine) -> Iterator[Person]:
    """A user whose daemon his own service manager runs."""
    yield from _person(machine, "bob", "gpusched")


def _person(machine: Machine, name: str, unit: str) -> Iterator[Person]:
    person = Person(machine, name, unit)
    person.start()
    yield person
    person.end()


def _install(machine: Machine, stand_in: StandIn) -> None:
    library = Path(stand_in.host(ONE_DEVICE).env["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
    (machine.root / "opt/stand-in").mkdir(parents=True)
    (machine.root / "opt/stand-in/libnvidia-ml.so.1").write_bytes(library.read_bytes())
    machine.write("/opt/stand-in/scenario", ONE_DEVICE)
    machine.write("/etc/tmpfiles.d/gpusched.conf", (UNITS / "gpusched.tmpfiles.conf").read_text())
    machine.run("systemd-tmpfiles", "--create", "gpusched.conf")
    for unit, place in {"gpusched@.service": "system", "gpusched.service": "user"}.items():
        machine.write(f"/etc/systemd/{place}/{unit}", (UNITS / unit).read_text())
        # A daemon that hangs is to be noticed soon; one that this busy host keeps waiting does not hang.
        settings = "".join(f"Environment={name}={value}\n" for name, value in Person.DEVICES.items())
        machine.write(
            f"/etc/systemd/{place}/{unit}.d/test.conf", f"[Service]\nWatchdogSec=10\nRestartSec=0\n{settings}"
        )
    machine.run("systemctl", "daemon-reload")
    for user in ("alice", "bob"):
        machine.run("useradd", "--create-home", user)
        machine.run("loginctl", "enable-linger", user)
        machine.run("systemctl", "start", f"user@{machine.uid(user)}")  # lingering starts it, at some later moment
        command = f"mkdir -p ~/.local/bin && ln -s {sys.prefix}/bin/gpusched ~/.local/bin/gpusched"
        machine.run("sh", "-c", command, user=user)
