"""What a person typed of a plan, and the way from it to a plan for this host or for another."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec.structs import replace

from gpusched.environment import users_visible_devices
from gpusched.errors import HostFault, UsageError
from gpusched.model.device import Inventory
from gpusched.model.job import Submission, VisibleDevices
from gpusched.model.lease import Lease
from gpusched.model.plan import Plan, Request
from gpusched.model.workload import Workload
from gpusched.settings import HERE, Settings, machine_typed

if TYPE_CHECKING:
    from gpusched.leases.directory import LeaseDirectory

__all__ = [
    "PlanOptions",
    "machine_meant",
    "plan_beside",
    "read_machine",
    "visible_here",
    "without_drained",
    "xla_variable",
]


class PlanOptions(NamedTuple):
    """What a person typed, as it was typed; `least_procs`: a launch that takes actors of other hosts may have none.

    `fixed`: the workload's own numbers are those of a larger job's part, whatever this host has.
    """

    procs: str | None = None
    machine: str | None = None
    gpus: str | None = None
    exclude_gpus: str | None = None
    ignore_foreign: str | None = None
    learner_memory: str | None = None
    actor_memory: str | None = None
    policy: str | None = None
    grow: bool | None = None
    least_procs: int = 1
    visible: VisibleDevices | None = None
    fixed: bool = False

    def here(self, settings: Settings) -> Self:
        """Return it for the machine that is meant, and what is visible there. Raises UsageError and HostFault."""
        machine = machine_meant(self.machine, settings)
        return self._replace(machine=machine, visible=visible_here(os.environ, machine))

    def plan(self, workload: Workload, settings: Settings, options: bytes = b"{}") -> Plan:
        """Return the plan for `workload` under its `options` (JSON), beside what is leased here if it is for this host.

        Raises UsageError, NeverFits, NotNow, and HostFault for a driver that does not work.
        """
        from gpusched.execution.measured import measured_here
        from gpusched.leases.directory import lease_directory

        machine = read_machine(self.machine, settings)
        leases = lease_directory(settings, simulated=False) if self.machine is None else None
        asked = measured_here(replace(self.submission(workload), options=options), machine[0], settings)
        return plan_beside(leases, asked, machine, settings)

    def request(self, workload: Workload) -> Request:
        """Return what the workload asks for with what was typed. Raises UsageError."""
        from gpusched.planner import request_for

        return request_for(
            workload, self.procs, self.learner_memory, self.actor_memory, self.least_procs, fixed=self.fixed
        )

    def submission(self, workload: Workload) -> Submission:
        """Return what is asked of the planner, without what starting the job takes. Raises UsageError."""
        from gpusched.planner import counted_role

        return Submission(
            workload=workload,
            request=self.request(workload),
            maximise=counted_role(workload) if self.procs == "max" else None,
            policy=self.policy,
            grow=self.grow,
            gpus=self.gpus,
            exclude_gpus=self.exclude_gpus,
            ignore_foreign=self.ignore_foreign,
            visible=self.visible,
            machine=self.machine,
            cwd=os.sep,
            environ={},
            python="",
            xla_variable="",
        )


def read_machine(machine: str | None, settings: Settings) -> tuple[Inventory, tuple[Lease, ...]]:
    """Return the machine that is meant, without what is drained here, and the leases that were saved with it.

    Raises UsageError for an unknown machine, and HostFault for a driver that does not work.
    """
    from gpusched.probe.base import read_inventory, require_usable

    inventory, leases = read_inventory(machine)
    require_usable(inventory)
    return (without_drained(inventory, settings) if machine is None else inventory), leases


def plan_beside(
    directory: "LeaseDirectory | None",
    submission: Submission,
    machine: tuple[Inventory, tuple[Lease, ...]],
    settings: Settings,
) -> Plan:
    """Return the plan on a `machine` beside the leases saved with it and those held now that lie in `directory`."""
    from gpusched.execution.plans import plan_for

    inventory, leases = machine
    if directory is not None:
        from gpusched.execution.lease_usage import current_leases, running_leases

        leases += current_leases(directory, inventory, partial(running_leases, settings.state_dir))
    return plan_for(submission, inventory, leases, settings)


def ignored_lines(submission: Submission, settings: Settings) -> tuple[str, ...]:
    """Return what a queued job passes over as things are now, and what that risks; nothing where that is not known.

    Raises UsageError for what `ignore_foreign` cannot mean.
    """
    from gpusched.execution.lease_usage import current_leases, running_leases
    from gpusched.leases.directory import lease_directory
    from gpusched.planner.foreign import without_ignored

    if submission.ignore_foreign is None:
        return ()
    with suppress(HostFault):
        inventory, leases = read_machine(submission.machine, settings)
        if submission.machine is None:
            directory = lease_directory(settings, simulated=False)
            leases += current_leases(directory, inventory, partial(running_leases, settings.state_dir))
        return without_ignored(inventory, leases, submission.ignore_foreign)[1]
    return ()


def machine_meant(machine: str | None, settings: Settings) -> str | None:
    """Return the machine to plan for: what was typed, of which `here` is this host, or the configuration's.

    None is this host. Raises UsageError for one of the configuration that is not known, HostFault for its file.
    """
    if machine is not None or settings.default_machine is None:
        return machine_typed(machine)
    from gpusched.probe.base import read_inventory

    try:
        read_inventory(settings.default_machine)
    except UsageError as error:
        hint = f"mend default_machine in the configuration, or give --machine {HERE} for this host"
        raise UsageError(error.message, hint) from None
    return settings.default_machine


def visible_here(environ: Mapping[str, str], machine: str | None) -> VisibleDevices | None:
    """Return what a person's CUDA_VISIBLE_DEVICES leaves of this host; None if it is unset, or the host is another."""
    names = users_visible_devices(environ)
    if names is None or machine is not None:
        return None
    by_bus = environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    return VisibleDevices(names=names.encode(errors="replace").decode(), by_bus=by_bus)


def without_drained(inventory: Inventory, settings: Settings) -> Inventory:
    """Return the inventory of this host with the devices marked that take nothing new. Raises HostFault."""
    from gpusched.linux.processes import boot_id
    from gpusched.probe.drained import mark, read_drained

    return mark(inventory, read_drained(settings.state_dir, boot_id()))


def xla_variable() -> str:
    """Return the variable that limits the JAX that is installed here."""
    from importlib.util import find_spec

    from gpusched.frameworks.jax import fraction_variable

    if find_spec("jaxlib") is None:
        return fraction_variable(None)
    from importlib.metadata import PackageNotFoundError, version  # takes 30 ms to import

    try:
        return fraction_variable(version("jaxlib"))
    except PackageNotFoundError:  # a folder of that name, perhaps
        return fraction_variable(None)
