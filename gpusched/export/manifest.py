"""What manifests of every kind share: what is exported, its replicas with their environment, notes for a person.

It must not know files, clocks, the environment of this process, nor a format.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import gpusched
from gpusched.environment import Addresses, identity_environment
from gpusched.errors import UsageError
from gpusched.model.plan import Plan, Replica, ReplicaSpec
from gpusched.model.workload import Workload
from gpusched.planner import replica_specs

__all__ = [
    "NO_IMAGE",
    "PYTHON",
    "RUN_DIR",
    "Exported",
    "Manifests",
    "common_notes",
    "device_of",
    "exported_identity",
    "manifest_name",
    "require_distinct",
    "restarts",
    "specs",
    "word",
]

NO_IMAGE: Final = "NAME-AN-IMAGE"
"""In the place of an image that was not named. No image can be called so: it has capital letters."""

PYTHON: Final = "python3"
"""What `{python}` means in an image, whose interpreter is not known here."""

RUN_DIR: Final = "/gpusched/run"

_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


class Exported(NamedTuple):
    """What is written down. `name` is that of the job in the manifests; `options` are the workload's, as JSON."""

    plan: Plan
    workload: Workload
    name: str
    image: str
    options: bytes
    xla_variable: str


class Manifests(NamedTuple):
    """The documents of one export, and what the person who starts them must know, line by line."""

    documents: tuple[dict[str, object], ...]
    notes: tuple[str, ...]


def manifest_name(workload: Workload, given: str | None) -> str:
    """Return what the job is called: `given`, else the workload's name. Raises UsageError for what is no DNS label."""
    name = word(workload.name) if given is None else given
    if not _NAME.fullmatch(name):
        hint = "give at most 32 lower-case letters, digits and -, a letter first: --name NAME"
        raise UsageError(f"{name!r} cannot be the name of what is exported", hint)
    return name


def word(name: str) -> str:
    """Return the name of a workload or a role in the letters of a DNS label (RFC 1123): `mnist-towers`."""
    return name.replace("_", "-").strip("-")


def require_distinct(kind: str, names: Iterable[str]) -> None:
    """Raise UsageError where two of what is exported would have one name: role names differ in `_` and `-` only."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(f"two {kind} would be called {name}", "rename one of the roles in the workload file")


def specs(what: Exported, identity: Callable[[Replica], Mapping[str, str]]) -> list[ReplicaSpec]:
    """Return the specs of all replicas, role by role in the workload's order, each role by rank."""
    every = replica_specs(
        what.plan, what.workload, python=PYTHON, cwd="", xla_variable=what.xla_variable, identity=identity
    )
    order = [role.name for role in what.workload.roles]
    return sorted(every, key=lambda spec: (order.index(spec.replica.role), spec.replica.rank))


def exported_identity(what: Exported, replica: Replica, there: Addresses) -> dict[str, str]:
    """Return what names a replica in its container, and where it finds the others."""
    (count,) = (role.count for role in what.plan.request.roles if role.name == replica.role)
    return identity_environment(replica, there, job=what.name, role_count=count, run_dir=RUN_DIR, settings=what.options)


def device_of(what: Exported, replica: Replica) -> str | None:
    """Return by which name a container gets the replica's device: its uuid; its index, if it is only described.

    The uuids of a machine profile are made up, while its indices are those of every machine of that kind.
    """
    if replica.device_uuid is None:
        return None
    return str(replica.device_index) if what.plan.inventory.source == "profile" else replica.device_uuid


def restarts(workload: Workload, role: str) -> int:
    """Return how often a replica of that role is started again after a failure."""
    restart = workload.role(role).restart
    return 0 if restart.policy == "never" else restart.max


def common_notes(what: Exported) -> list[str]:
    """Return the notes of every export."""
    plan = what.plan
    placed = (
        f"{list(plan.counts)} on {plan.inventory.host}" if plan.devices else f"on the CPUs of {plan.inventory.host}"
    )
    notes = [f"{what.name}: {len(plan.replicas)} processes, planned {placed} by gpusched {gpusched.__version__}."]
    if what.image == NO_IMAGE:
        notes.append(f"No image was named: {NO_IMAGE} stands in its place (--image IMAGE).")
    notes += [f"Warning of the plan: {warning}" for warning in plan.warnings]
    notes += [
        f"The role {role} is restarted only after a failure: here, `always` would have no end."
        for role in _always(what.workload)
    ]
    return notes


def _always(workload: Workload) -> Iterable[str]:
    return (role.name for role in workload.roles if role.restart.policy == "always")
