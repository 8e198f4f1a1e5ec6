"""Collects the facts: each section in one thread and all within one deadline, so that nothing holds it up.

It reads and asks, and changes nothing.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gpusched
from gpusched.doctor.collect_host import host_facts, place_facts
from gpusched.doctor.collect_kept import kept_facts
from gpusched.doctor.facts import OWN_DISTRIBUTIONS, DaemonFacts, DeviceFacts, Facts, SoftwareFacts
from gpusched.environment import users_visible_devices
from gpusched.errors import GpuschedError, NoDaemon
from gpusched.frameworks.registry import frameworks
from gpusched.probe.reading import Reading
from gpusched.settings import Settings, load_settings

__all__ = ["collect"]

_DEADLINE_S: Final = 10.0  # what hangs costs as long; on a host that is busy all is late, and well
_NVML_S: Final = 8.0
_DAEMON_S: Final = 5.0
_HOOK_S: Final = 8.0
_PCI: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
_DISPLAYS: Final = "0x03"  # PCI class code 03: display controllers, 3D ones included
_ASK_FOR_HOOK: Final = "import sys; print(*(type(finder).__name__ for finder in sys.meta_path))"


def collect(environ: Mapping[str, str]) -> Facts:
    """Return what could be read in time; a section that could not is in `failed`. It raises nothing."""
    readers: dict[str, Callable[[], Any]] = {
        "host": host_facts,
        "software": lambda: _software(environ),
        "hook": lambda: _hook(environ),
    }
    problem, deadline_s = None, _DEADLINE_S
    try:
        settings = load_settings(environ)
        deadline_s += max(0.0, settings.driver_patience_s - _NVML_S)
        readers |= {
            "devices": lambda: _devices(settings, environ),
            "places": lambda: place_facts(settings),
            "kept": lambda: kept_facts(settings),
            "daemon": lambda: _daemon(settings),
        }
    except GpuschedError as error:
        problem = (error.message, error.hint)
    until = time.monotonic() + deadline_s
    readings = {name: Reading(read, f"doctor-{name}") for name, read in readers.items()}
    sections: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, reading in readings.items():
        if not reading.wait(until - time.monotonic()):
            failed[name] = f"no answer within {deadline_s:g} s"
            continue
        try:
            sections[name] = reading.result()
        except GpuschedError as error:
            failed[name] = error.message
        except Exception as error:  # noqa: BLE001 (whatever is wrong with a host, the doctor reports it)
            failed[name] = f"{type(error).__name__}: {error}"
    return Facts(**sections, failed=failed, settings_problem=problem)


# ---- devices ----


def _devices(settings: Settings, environ: Mapping[str, str]) -> DeviceFacts:
    from gpusched.execution.lease_usage import with_processes
    from gpusched.execution.queue_answer import ask_queue, with_idle
    from gpusched.execution.read_jobs import read_job
    from gpusched.leases.directory import lease_directory
    from gpusched.linux.processes import boot_id
    from gpusched.model.lease import Lease
    from gpusched.probe.drained import Drained, mark, read_drained
    from gpusched.probe.nvml import NvmlProbe

    inventory = NvmlProbe(max(_NVML_S, settings.driver_patience_s)).read()
    inventory = with_idle(inventory, ask_queue(settings).idle)
    leases: tuple[Lease, ...] = ()
    drained: dict[str, Drained] = {}
    drained_problem = None
    with contextlib.suppress(GpuschedError):  # the check of its directory reports it
        leases = lease_directory(settings, simulated=False).read()
    try:
        drained = read_drained(settings.state_dir, boot_id())
    except GpuschedError as error:
        drained_problem = error.message
    own = [read_job(Path(run_dir)) for run_dir in {one.run_dir for one in leases if one.user is None}]
    return DeviceFacts(
        inventory=mark(inventory, drained),
        now=time.time(),
        drained_problem=drained_problem,
        leases=with_processes(leases, inventory, own),
        module_version=_first_line("/sys/module/nvidia/version"),
        library_version=_library_version(),
        on_bus=_on_bus(),
        variables=_variables(environ),
        uvm_missing=Path("/dev/nvidiactl").exists() and not Path("/dev/nvidia-uvm").exists(),
        mps=_mps(),
    )


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a person has set of which devices CUDA sees, and in which order."""
    visible = users_visible_devices(environ)
    order = environ.get("CUDA_DEVICE_ORDER")
    return {
        name: value
        for name, value in (("CUDA_DEVICE_ORDER", order), ("CUDA_VISIBLE_DEVICES", visible))
        if value is not None
    }


def _first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().partition("\n")[0].strip() or None
    except OSError:
        return None


def _library_version() -> str | None:
    """Return the version in the name of NVIDIA's library that this process has loaded, None if the name has none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libnvidia-ml.so" in line:
            version = os.path.realpath("/" + line.partition("/")[2]).partition(".so.")[2]
            return version if "." in version else None
    return None


def _on_bus() -> int:
    if not _PCI.is_dir():
        return 0
    return sum(
        _first_line(f"{device}/vendor") == _NVIDIA and (_first_line(f"{device}/class") or "").startswith(_DISPLAYS)
        for device in _PCI.iterdir()
    )


def _mps() -> tuple[int, ...]:
    """Return the control daemons of MPS."""
    import psutil

    named = psutil.process_iter(["name"])
    return tuple(process.pid for process in named if process.info["name"] == "nvidia-cuda-mps-control")


# ---- gpusched itself ----


def _daemon(settings: Settings) -> DaemonFacts:
    import pwd

    from gpusched.control.client import Client
    from gpusched.control.messages import Ping, Pong
    from gpusched.control.place import control_socket, listener

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user that the host does not know, as in some containers
        name = str(os.getuid())
    about: dict[str, Any] = {
        "version": gpusched.__version__,
        "log": str(settings.state_dir / "daemon.log"),
        "user_name": name,
        "is_root": os.getuid() == 0,
        "systemd": Path("/run/systemd/system").is_dir(),
        "lingers": Path("/var/lib/systemd/linger", name).exists(),
    }
    pid = listener(control_socket(settings))
    if pid is None:
        return DaemonFacts(**about)
    about |= {"pid": pid, "unit": _unit(pid)}
    try:
        with Client(settings) as client:
            pong = client.ask(Ping(), patience_s=_DAEMON_S)
    except NoDaemon as error:
        return DaemonFacts(**about, silence=error.message, silence_fix=error.hint)
    if not isinstance(pong, Pong):
        return DaemonFacts(**about, silence="it does not answer what it was asked")
    return DaemonFacts(
        **about,
        daemon_version=pong.version,
        problems=pong.problems,
        undelivered=pong.undelivered,
        malformed=pong.malformed,
    )


def _unit(pid: int) -> str | None:
    """Return the name of the service that a process runs in; not that of the user's service manager above it."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    names = [group.rpartition("/")[2] for group in groups]
    return next((name for name in names if name.endswith(".service") and not name.startswith("user@")), None)


def _software(environ: Mapping[str, str]) -> SoftwareFacts:
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    installed = {}
    for name in (*OWN_DISTRIBUTIONS, "pynvml", *(name for one in frameworks() for name in one.distributions)):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    both = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    return SoftwareFacts(
        python=platform.python_version(),
        executable=sys.executable,
        gpusched=gpusched.__version__,
        installed=installed,
        variables={name: environ[name] for name in both if name in environ},
    )


def _hook(environ: Mapping[str, str]) -> str:
    """Start this interpreter as a replica's, and return "" if it has the hook, else its error."""
    import subprocess
    import sys

    from gpusched.environment import child_environment

    ended = subprocess.run(
        [sys.executable, "-c", _ASK_FOR_HOOK],
        env=child_environment(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_HOOK_S,
        check=False,
    )
    if "LimitingFinder" in ended.stdout:
        return ""
    return ended.stderr.strip().rpartition("\n")[2] or "the interpreter does not run it"
