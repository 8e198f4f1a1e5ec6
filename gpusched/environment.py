"""The environment of a replica: its names, and how it is written.

A child's environment is a value here; nothing in this module changes the environment of the process it runs in. It must
not know who starts the process, nor import a framework.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpusched.model.plan import Replica
from gpusched.settings import DRIVER_PATIENCE, PLACES

__all__ = [
    "HOOK_DIRECTORY",
    "JOINED_HOSTS",
    "LONGEST_SOCKET_PATH",
    "Addresses",
    "attempt_environment",
    "child_environment",
    "identity_environment",
    "modules_to_preload",
    "not_inherited",
    "outside_environment",
    "resource_environment",
    "skips_hook",
    "threads",
    "users_threads",
    "users_visible_devices",
]

LONGEST_SOCKET_PATH: Final = 107
"""Bytes that the path of an ipc endpoint may have: sun_path of unix(7), without its final zero."""

HOOK_DIRECTORY: Final = Path(__file__).parent / "frameworks" / "hook"
"""First on a replica's PYTHONPATH: its sitecustomize limits frameworks in scripts that know nothing of gpusched."""

JOINED_HOSTS: Final = "joined.json"
"""In the run directory of a job that listens, where its learner writes it: the hosts whose actors feed it."""

_DEVICES: Final = "CUDA_VISIBLE_DEVICES"

_OUR_DEVICES: Final = "GPUSCHED_VISIBLE_DEVICES"

_THREADS: Final = "OMP_NUM_THREADS"

_OUR_THREADS: Final = "GPUSCHED_THREADS"

_OURS: Final = ((_OUR_DEVICES, _DEVICES), (_OUR_THREADS, _THREADS))

_PYTHON: Final = re.compile(r"\{python\}|python[\d.]*")

_OPTIONS: Final = re.compile(r"-(?=.)(?P<flags>[^-cmWX]*)(?P<last>[cmWX]?)(?P<value>.*)", re.DOTALL)

_NOT_INHERITED: Final = (
    "NOTIFY_SOCKET",  # a replica must not speak to systemd in the supervisor's name (sd_notify(3))
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)


def not_inherited() -> tuple[str, ...]:
    """Return the variables that no replica inherits."""
    from gpusched.frameworks.registry import frameworks

    return (*(name for framework in frameworks() for name in framework.not_inherited), *_NOT_INHERITED)


def resource_environment(replica: Replica, xla_variable: str) -> dict[str, str]:
    """Return what makes CUDA, OpenMP and the frameworks keep to the replica's device, limit and CPUs.

    `xla_variable` is the one that JAX reads where the job was submitted. Limits that have no variable, such as those of
    TensorFlow and PyTorch, are applied in the process by gpusched.frameworks.
    """
    from gpusched.frameworks.limit import Limit
    from gpusched.frameworks.registry import frameworks

    threads = str(replica.threads)
    further = (share.device_uuid for share in replica.further)
    env = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        _DEVICES: ",".join(filter(None, (replica.device_uuid, *further))),
        **dict.fromkeys(_thread_variables(), threads),
    }
    if replica.device_uuid is not None:
        limit = Limit(replica.process_limit_mib, replica.process_fraction)
        env |= {"GPUSCHED_MEMORY_LIMIT_MIB": str(limit.mib), "GPUSCHED_MEMORY_FRACTION": f"{limit.ratio:.4f}"}
        for framework in frameworks():
            env |= framework.environment(limit, xla_variable)
    return env


class Addresses(NamedTuple):
    """Where the others of a replica are. `keys` is a file's path.

    `listen` is for the learner of a job that other hosts may join; `joined` and `first_rank` are for the replicas of a
    host that did, `patience_s` (seconds) for all whose learner is elsewhere, `incarnation` for the nodes of a cluster.
    """

    endpoint: str
    keys: str | None = None
    listen: str | None = None
    joined: str = ""
    first_rank: int = 0
    patience_s: int | None = None
    incarnation: int = 0


def identity_environment(
    replica: Replica,
    there: Addresses,
    *,
    job: str,
    role_count: int,
    run_dir: str,
    settings: bytes,
    index: int | None = None,
) -> dict[str, str]:
    """Return which replica it is, where the others are and where to write.

    `settings` is JSON. `index`: the number of a member of an array.
    """
    env = {
        "GPUSCHED_JOB": job,
        "GPUSCHED_ROLE": replica.role,
        "GPUSCHED_RANK": str(there.first_rank + replica.rank),
        "GPUSCHED_ROLE_COUNT": str(role_count),
        "GPUSCHED_REPLICA": replica.name,
        "GPUSCHED_ENDPOINT": there.endpoint,
        "GPUSCHED_RUN_DIR": run_dir,
        "GPUSCHED_SETTINGS": settings.decode(),
    }
    further = {
        "GPUSCHED_KEYS": there.keys,
        "GPUSCHED_LISTEN": there.listen,
        "GPUSCHED_JOINED": there.joined or None,
        "GPUSCHED_PATIENCE_S": None if there.patience_s is None else str(there.patience_s),
        "GPUSCHED_INCARNATION": str(there.incarnation) if there.incarnation else None,
        "GPUSCHED_INDEX": None if index is None else str(index),
    }
    return env | {name: value for name, value in further.items() if value is not None}


def attempt_environment(attempt: int) -> dict[str, str]:
    """Return what changes from one start of a replica to the next; the first attempt is 0."""
    return {"GPUSCHED_ATTEMPT": str(attempt)}


def child_environment(base: Mapping[str, str], *layers: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without what a replica must not inherit, with `layers` over it and the hook first on PYTHONPATH.

    Where gpusched's directories are is inherited, so that a gpusched inside the job has the same leases and the same
    daemon; who an outer job's replica is, is not. Numbers of threads that a person has set stay. Devices and threads
    that are set here stand there twice, so that a gpusched inside the job does not take them for a person's wish.
    """
    dropped = not_inherited()
    env = {name: value for name, value in base.items() if name not in dropped and not _is_of_a_replica(name)}
    for layer in layers:
        env |= layer
        if _DEVICES in layer:
            env |= users_threads(base) | {ours: layer[name] for ours, name in _OURS if name in layer}
    rest = _without_hook(env)
    env["PYTHONPATH"] = os.pathsep.join([str(HOOK_DIRECTORY), *rest])
    return env


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` as it would be outside the job whose replica has it; what is in no job's stays as it is.

    For what outlives the job: a daemon that is started inside it, and a job that it puts into the queue.
    """
    if "GPUSCHED_JOB" not in environ:
        return dict(environ)
    env = {name: value for name, value in environ.items() if not _is_of_a_replica(name)}
    run_dir = environ.get("GPUSCHED_RUN_DIR")
    if run_dir and Path(env.get("TMPDIR", "/")).is_relative_to(run_dir):  # it goes with the job
        del env["TMPDIR"]
    if environ.get(_DEVICES) == environ.get(_OUR_DEVICES):
        env.pop(_DEVICES, None)
    env = {name: value for name, value in env.items() if name not in _thread_variables()} | users_threads(environ)
    path = _without_hook(env)
    env.pop("PYTHONPATH", None)
    return env | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})


def _thread_variables() -> tuple[str, ...]:
    from gpusched.frameworks.registry import frameworks

    return (_THREADS, *(name for framework in frameworks() for name in framework.threads))


def _is_of_a_replica(name: str) -> bool:
    return name.startswith("GPUSCHED_") and name not in (*PLACES, DRIVER_PATIENCE)


def _without_hook(env: Mapping[str, str]) -> list[str]:
    path = env.get("PYTHONPATH")  # an empty entry in it is the working directory, and stays
    return [entry for entry in path.split(os.pathsep) if entry != str(HOOK_DIRECTORY)] if path else []


def users_visible_devices(environ: Mapping[str, str]) -> str | None:
    """Return the CUDA_VISIBLE_DEVICES that a person or a script has set; None if it is unset, or is a job's own."""
    visible = environ.get(_DEVICES)
    return None if visible == environ.get(_OUR_DEVICES) else visible


def users_threads(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers of threads that a person or a script has set, by variable; not those of a job."""
    ours = environ.get(_OUR_THREADS)
    return {name: environ[name] for name in _thread_variables() if environ.get(name) and environ[name] != ours}


def threads(environ: Mapping[str, str]) -> int:
    """Return with how many threads OpenMP computes in this environment, 1 where it sets no number."""
    first = environ.get(_THREADS, "").partition(",")[0].strip()  # further ones are for teams within teams
    return max(1, int(first)) if first.isdecimal() else 1


def modules_to_preload(preload: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a workload's `preload` means where Keras is set to use another backend than TensorFlow."""
    backend = environ.get("KERAS_BACKEND") or "tensorflow"  # as Keras reads it: an empty one names none
    return tuple(backend if module == "tensorflow" else module for module in preload)


def skips_hook(command: Sequence[str]) -> bool:
    """Return whether `command` starts Python with -I, -E or -S: the first two ignore PYTHONPATH, the last skips site.

    Options are read as docs.python.org/3/using/cmdline.html has them: what follows -c, -m or a file is the script's.
    """
    if not _PYTHON.fullmatch(Path(command[0]).name):
        return False
    arguments = iter(command[1:])
    for argument in arguments:
        options = _OPTIONS.fullmatch(argument)
        if options is None:
            return False
        if set("IES").intersection(options["flags"]):
            return True
        if options["last"] and options["last"] in "cm":
            return False
        if options["last"] and not options["value"]:
            next(arguments, None)
    return False
