"""Settings of this person on this host: those of a configuration file and the environment. It starts nothing.

A path in a variable is seen from the working directory, and may begin with `~`. Whatever is started in another
directory gets them whole: see `places` and Settings.environment.

File: `$GPUSCHED_CONFIG`, else `$XDG_CONFIG_HOME/gpusched/config.toml` (`~/.config`). All keys are optional:

    context = "450MiB"      # what a process takes on a device before it allocates anything; calibrate it
    headroom = 0.02         # the part of every device that is never planned
    state_dir = "..."       # jobs, logs and results, seen from the file's directory; $GPUSCHED_STATE_DIR wins
    overrun = "stop"        # a replica beyond its share and a larger context: "warn" of it, or "stop" and restart it
    overrun_grace = 10      # seconds for which it may
    most_jobs = 64          # jobs that the daemon lets run at the same time
    strict = false          # true: a job passes another only by a proof or by its time limit
    most_delay = "2d"       # so long after a job was expected to start, no expectation lets another pass it
    idle_after = "30m"      # a job is idle whose devices have done nothing for so long
    idle_below = 1          # nothing: its kernels ran in less than this part of the time, in percent
    log_cap = "256MiB"      # what a log may hold before its middle is cut out; "none": any amount
    keep_jobs = "90d"       # how long jobs are kept that ended, or 10000: how many; without it, until `rm` or `prune`
    keep_logs = "30d"       # how long the logs of jobs are kept that ended; without it, as long as the job
    default_machine = "..." # what plan, launch and run mean without --machine, with its devices simulated
    engine = "local"        # what launch has the processes run by: this host, or a cluster such as "slurm"

The table [notify] has where notifications go: see notify_settings.py.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from gpusched.errors import HostFault, UsageError
from gpusched.notify_settings import NotifySettings
from gpusched.settings_keys import ENGINES, LOCAL, KeptJobs, expanded, set_by

__all__ = [
    "DRIVER_PATIENCE",
    "ENGINES",
    "HERE",
    "LOCAL",
    "LOG_CAP_MIB",
    "PLACES",
    "KeptJobs",
    "Settings",
    "SettingsWarning",
    "driver_patience_s",
    "load_settings",
    "machine_typed",
    "places",
    "queue_settings",
    "sessionless_runtime_dir",
    "toml_message",
]

PLACES: Final = ("GPUSCHED_CONFIG", "GPUSCHED_STATE_DIR", "GPUSCHED_RUNTIME_DIR", "GPUSCHED_LEASE_DIR")
"""The variables that name gpusched's directories, and its configuration file."""

DRIVER_PATIENCE: Final = "GPUSCHED_DRIVER_PATIENCE"
"""The variable with the seconds that NVML is waited for."""

_DRIVER_PATIENCE_S: Final = 2.0
_LONGEST_DRIVER_PATIENCE_S: Final = 600.0

HERE: Final = "here"
"""What `--machine` calls this host, where `default_machine` names another."""

LOG_CAP_MIB: Final = 256
"""What a log may hold where the configuration has nothing else."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not depend on the workload. Memory in MiB, `headroom` in 1/10 000.

    `lease_dir` is where all users of this host see each other's leases, or only this user's processes their own.
    `context_given`: the context is the configuration's, so that no measured one takes its place.
    `log_cap_mib` 0: no cap. `keep_logs_s` None: logs are kept as long as their job.
    """

    state_dir: Path
    runtime_dir: Path
    lease_dir: Path
    context_mib: int = 450
    context_given: bool = False
    headroom: int = 200
    overrun: Literal["warn", "stop"] = "stop"
    overrun_grace_s: float = 10.0
    most_jobs: int = 64
    log_cap_mib: int = LOG_CAP_MIB
    keep_jobs: KeptJobs = KeptJobs()
    keep_logs_s: float | None = None
    strict: bool = False
    most_delay_s: float = 172_800.0
    idle_after_s: float = 1800.0
    idle_below: float = 1.0
    engine: str = LOCAL
    default_machine: str | None = None
    driver_patience_s: float = _DRIVER_PATIENCE_S
    notify: NotifySettings = NotifySettings()

    def environment(self) -> dict[str, str]:
        """Return the variables by which another process finds the same directories, wherever it runs."""
        return {
            "GPUSCHED_STATE_DIR": str(self.state_dir),
            "GPUSCHED_RUNTIME_DIR": str(self.runtime_dir),
            "GPUSCHED_LEASE_DIR": str(self.lease_dir),
        }


def places(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those of PLACES that `environ` sets, as whole paths. Raises UsageError for `~` of an unknown user."""
    return {name: str(_given(environ, name)) for name in PLACES if environ.get(name)}


def driver_patience_s(environ: Mapping[str, str]) -> float:
    """Return how long NVML is waited for, in seconds. Raises UsageError for what is no number from 0.1 to 600."""
    text = environ.get(DRIVER_PATIENCE) or str(_DRIVER_PATIENCE_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= _LONGEST_DRIVER_PATIENCE_S:  # noqa: PLR2004 (NaN fails this comparison too)
        hint = f"give seconds from 0.1 to {_LONGEST_DRIVER_PATIENCE_S:g}, such as 10"
        raise UsageError(f"{DRIVER_PATIENCE}={text!r} is no time to wait for the driver", hint)
    return seconds


def machine_typed(machine: str | None) -> str | None:
    """Return the machine that `--machine` names; None is this host, and so is `here`."""
    return None if machine == HERE else machine


class SettingsWarning(UserWarning):
    """A part of the configuration that is wrong was left out."""


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Read the configuration file and the environment `environ`. Raises UsageError for a wrong file."""
    return _load(environ, _refuse)


def queue_settings(environ: Mapping[str, str]) -> Settings:
    """Read the same for who shows, keeps or ends jobs: what is wrong in the file is left out, with a SettingsWarning.

    Raises UsageError where it can be `state_dir` that is wrong: another queue would be meant.
    """
    import warnings

    def leave_out(error: UsageError) -> None:
        warnings.warn(f"{error.message}; it is left out ({error.hint})", SettingsWarning, stacklevel=1)

    return _load(environ, leave_out)


def _refuse(error: UsageError) -> None:
    raise error


def _load(environ: Mapping[str, str], wrong: Callable[[UsageError], None]) -> Settings:
    path = _config_path(environ)
    document = _read(path, wrong, required=bool(environ.get("GPUSCHED_CONFIG")))
    values: dict[str, object] = {"state_dir": _state_dir(environ), "runtime_dir": _runtime_dir(environ)}
    values["driver_patience_s"] = driver_patience_s(environ)
    values["lease_dir"] = _lease_dir(environ, _runtime_dir(environ))
    for key, value in document.items():
        try:
            values |= set_by(path, key, value)
        except UsageError as error:
            if key == "state_dir":
                raise
            wrong(error)
    if environ.get("GPUSCHED_STATE_DIR"):
        values["state_dir"] = _state_dir(environ)
    settings = msgspec.convert(values, Settings)
    real = Path(os.path.realpath(settings.state_dir))  # a link is followed once, here: each name would be another queue
    return _in_utf8(msgspec.structs.replace(settings, state_dir=real))


def _in_utf8(settings: Settings) -> Settings:
    """Refuse directories that no message between processes could name."""
    for directory in (settings.state_dir, settings.runtime_dir, settings.lease_dir):
        try:
            str(directory).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{str(directory)!r} is no path in UTF-8", "name another directory") from None
    return settings


def _given(environ: Mapping[str, str], name: str) -> Path:
    return expanded(environ[name], name).absolute()


def _read(path: Path, wrong: Callable[[UsageError], None], *, required: bool) -> dict[str, object]:
    mend = "mend the file, or move it away"
    try:
        text = path.read_text()
    except FileNotFoundError:
        if required:
            raise UsageError(f"{path}: there is no such file", "mend or unset GPUSCHED_CONFIG") from None
        return {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: {error}", mend) from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make the file readable, or move it away") from None
    import tomllib  # most people have no such file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        broken = UsageError(f"{path}: {toml_message(text, error)}", mend)
        if "state_dir" in text:
            raise broken from None
        wrong(broken)
        return {}


def toml_message(text: str, error: Exception) -> str:
    """Return what is wrong with a TOML `text`, with a line also where tomllib names only the end of the document."""
    line = len(text.rstrip().splitlines()) or 1
    return str(error).replace("(at end of document)", f"(at line {line}, the end of the document)")


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ["HOME"]) if environ.get("HOME") else Path("~").expanduser()
    except RuntimeError:  # a user that the host does not know, as in some containers
        raise HostFault("this user has no home directory", "set HOME") from None


def _absolute(environ: Mapping[str, str], name: str) -> Path | None:
    """Return a directory of the XDG Base Directory Specification, which has one ignored that is not absolute."""
    path = Path(environ.get(name, ""))
    return path if path.is_absolute() else None


def _config_path(environ: Mapping[str, str]) -> Path:
    if environ.get("GPUSCHED_CONFIG"):
        return _given(environ, "GPUSCHED_CONFIG")
    base = _absolute(environ, "XDG_CONFIG_HOME") or _home(environ) / ".config"
    return base / "gpusched" / "config.toml"


def _state_dir(environ: Mapping[str, str]) -> Path:
    if environ.get("GPUSCHED_STATE_DIR"):
        return _given(environ, "GPUSCHED_STATE_DIR")
    base = _absolute(environ, "XDG_STATE_HOME") or _home(environ) / ".local" / "state"
    return base / "gpusched"


def _lease_dir(environ: Mapping[str, str], runtime_dir: Path) -> Path:
    """Return the directory that systemd's tmpfiles make for all users of this host, or one of this user's own."""
    if environ.get("GPUSCHED_LEASE_DIR"):
        return _given(environ, "GPUSCHED_LEASE_DIR")
    shared = Path("/run/gpusched")
    return shared if os.access(shared, os.W_OK) else runtime_dir / "leases"


def _runtime_dir(environ: Mapping[str, str]) -> Path:
    """Return where sockets live; short, because a socket's path is limited to 107 bytes (unix(7))."""
    if environ.get("GPUSCHED_RUNTIME_DIR"):
        return _given(environ, "GPUSCHED_RUNTIME_DIR")
    login = Path(f"/run/user/{os.getuid()}")  # which cron and sudo do not set (pam_systemd(8))
    base = _absolute(environ, "XDG_RUNTIME_DIR") or (login if os.access(login, os.W_OK) else None)
    return base / "gpusched" if base else sessionless_runtime_dir()


def sessionless_runtime_dir() -> Path:
    """Return where sockets live of a user without a login session on this host."""
    return Path("/tmp") / f"gpusched-{os.getuid()}"  # noqa: S108 (made 0700, owner checked)
