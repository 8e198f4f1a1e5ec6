"""What a workload needs of this host, checked before 33 processes fail without it."""

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from gpusched.environment import modules_to_preload, skips_hook
from gpusched.errors import HostFault, NoProgram, NotExecutable
from gpusched.execution.active_python import active_python
from gpusched.execution.listing import has_waiting
from gpusched.frameworks.registry import frameworks
from gpusched.model.plan import Plan
from gpusched.model.workload import Workload
from gpusched.planner.plan_format import gpus
from gpusched.settings import Settings

__all__ = ["is_installed", "launch_warnings", "require_modules", "require_program", "require_programs"]


def launch_warnings(plan: Plan, workload: Workload, settings: Settings) -> list[str]:
    """Return what a person should know of a launch of this plan."""
    return [*plan.warnings, *_crowded(plan), *_without_hook(plan, workload), *_grown(plan, settings)]


def require_modules(workload: Workload) -> None:
    """Name the package to install before 33 processes fail without it, if they run by gpusched's own interpreter.

    Raises HostFault.
    """
    active = active_python(os.environ)
    if active is not None and any(active in role.command for role in workload.roles):
        return
    for wanted in modules_to_preload(workload.preload, os.environ):
        if not is_installed(wanted):
            hints = {one.name: one.install_hint for one in frameworks() if one.install_hint}
            hint = hints.get(wanted, f"install what provides the module {wanted}")
            raise HostFault(f"the workload {workload.name} needs {wanted}, which is not installed here", hint)


def require_programs(workload: Workload) -> None:
    """Refuse a workload whose command is no program here, before its processes fail to start. Raises HostFault."""
    from gpusched.planner import filled_in

    for role in workload.roles:
        program = filled_in(role.command[0], sys.executable)
        if role.count and shutil.which(program) is None:
            there = "/" in program and Path(program).exists()
            what = "is no program that can be executed" if there else "is no program of this host"
            where = "" if "/" in program else ", on the PATH of this shell"
            raise HostFault(
                f"the workload {workload.name}: {program!r}, the command of its role {role.name}, {what}{where}",
                f"install it, or correct the command in {workload.path or 'its workload.toml'}",
            )


def require_program(program: str, cwd: str, search: str | None = None) -> None:
    """Raise NoProgram or NotExecutable for what a shell could not start in the directory `cwd` either.

    `search`: where programs are; None: on the PATH of this process.
    """
    path = str(Path(cwd, program)) if "/" in program else program
    if shutil.which(path, path=search) is not None:
        return
    by_python = f"run it by Python: gpusched run -- python {shlex.quote(program)}"
    is_python = program.endswith(".py") and Path(cwd, program).is_file()
    if "/" in program and Path(path).exists():
        hint = by_python if is_python else f"make it executable: chmod +x {shlex.quote(program)}"
        raise NotExecutable(f"{program}: it is no program that can be executed", hint)
    argv = program.split()
    quoted = len(argv) > 1 and shutil.which(argv[0]) is not None
    hint = "install it, or give its path"
    if quoted:
        hint = f"leave the quotes out: gpusched run -- {program}; or a shell: sh -c {shlex.quote(program)}"
    raise NoProgram(f"{program}: there is no such program", by_python if is_python else hint)


def is_installed(module: str) -> bool:
    """Return whether this interpreter finds a module."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the package that it lies in is missing; it is __main__
        return False


def _without_hook(plan: Plan, workload: Workload) -> list[str]:
    limited = " and ".join(one.title for one in frameworks() if one.libraries)
    return [
        f"the command of role {role.name} has python's -I, -E or -S, which leave out the import hook that limits "
        f"{limited}; let the program call gpusched.frameworks.limit_memory()"
        for role in workload.roles
        if plan.devices and role.count and (role.memory or role.devices) and skips_hook(role.command)
    ]


def _grown(plan: Plan, settings: Settings) -> list[str]:
    """Return what growth takes where others live on the same devices, or wait."""
    least = {role.name: role.memory.min_mib for role in plan.request.roles if role.memory is not None}
    mine = [one for one in plan.replicas if one.device_uuid is not None and one.role in least]
    taken, needed = sum(one.share_mib for one in mine), sum(least[one.role] + one.context_mib for one in mine)
    if taken <= needed:
        return []
    devices = [device for device in plan.devices if device.uuid in {one.device_uuid for one in mine}]
    run = "run there" if any(device.leased_mib for device in devices) else ""
    others = " and ".join(filter(None, (run, "are in the queue" if has_waiting(settings) else "")))
    where = gpus([device.label for device in devices])
    enough = f"{needed} MiB are enough: --no-grow"
    return [f"it takes {taken} MiB of {where} while other jobs {others}; {enough}"] if others else []


def _crowded(plan: Plan) -> list[str]:
    """A simulated machine has as many CPUs as it likes; the processes have those of this host."""
    here = len(os.sched_getaffinity(0))
    crowded = plan.inventory.simulated and len(plan.inventory.cpus) != here and len(plan.replicas) > here
    return [f"{len(plan.replicas)} processes share the {here} CPUs of this host; fewer: --procs"] if crowded else []
