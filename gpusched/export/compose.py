"""A plan as a Compose file: one service for each replica, all on one host, with the devices that the plan gave them.

Sources: the Compose specification (github.com/compose-spec/compose-spec, 05-services.md and deploy.md).
"""

import math
from typing import Final

from gpusched.environment import Addresses
from gpusched.execution.hosts import learner_role
from gpusched.export.manifest import (
    RUN_DIR,
    Exported,
    Manifests,
    common_notes,
    device_of,
    exported_identity,
    require_distinct,
    restarts,
    specs,
    word,
)
from gpusched.model.plan import Replica, ReplicaSpec

__all__ = ["compose"]

_SOCKET: Final = f"{RUN_DIR}/sockets/learner.sock"
_VOLUME: Final = "run"


def compose(what: Exported) -> Manifests:
    """Return the Compose file.

    Raises UsageError for a workload in which nothing could listen, and for two services of one name.
    """
    learner = learner_role(what.workload)

    def identity(replica: Replica) -> dict[str, str]:
        return exported_identity(what, replica, Addresses(f"ipc://{_SOCKET}"))

    named = [(_service_name(spec.replica, learner), _service(what, spec)) for spec in specs(what, identity)]
    require_distinct("services", (name for name, _ in named))
    document: dict[str, object] = {"name": what.name, "services": dict(named), "volumes": {_VOLUME: {}}}
    return Manifests((document,), (*common_notes(what), *_notes(what)))


def _service_name(replica: Replica, learner: str) -> str:
    return word(replica.role) if replica.role == learner else f"{word(replica.role)}-{replica.rank}"


def _service(what: Exported, spec: ReplicaSpec) -> dict[str, object]:
    most = restarts(what.workload, spec.replica.role)
    service: dict[str, object] = {
        "image": what.image,
        "command": [_escaped(part) for part in spec.argv],
        "environment": {name: _escaped(value) for name, value in _environment(what, spec).items()},
        "volumes": [f"{_VOLUME}:{RUN_DIR}"],
        "init": True,  # as process 1, a program without a handler would ignore SIGTERM
        "restart": f"on-failure:{most}" if most else "no",
        "stop_grace_period": f"{math.ceil(what.workload.stop_grace_s)}s",
    }
    device = device_of(what, spec.replica)
    if device is not None:
        asked = {"driver": "nvidia", "device_ids": [device], "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [asked]}}}
    near = spec.replica.cpus
    if what.plan.inventory.source != "profile" and near and near != what.plan.inventory.cpus:
        service["cpuset"] = ",".join(map(str, near))
    return service


def _environment(what: Exported, spec: ReplicaSpec) -> dict[str, str]:
    """Return the environment as planned; a device that is known by its index is the container's first, and its only."""
    described = spec.replica.device_uuid is not None and what.plan.inventory.source == "profile"
    return {name: value for name, value in spec.env.items() if not (described and name == "CUDA_VISIBLE_DEVICES")}


def _escaped(text: str) -> str:
    """Return `text` as Compose takes it literally: it puts variables of the host in the place of `$NAME`."""
    return text.replace("$", "$$")


def _notes(what: Exported) -> list[str]:
    notes = [
        "Start it: docker compose up",
        f"Get the results, before the end: docker compose cp {word(learner_role(what.workload))}:{RUN_DIR} .",
        "End it: docker compose down (the results stay in the volume, too; -v removes them).",
    ]
    if what.plan.inventory.source == "profile" and what.plan.devices:
        notes.append(
            f"The devices are named by index: {what.plan.inventory.host} is described, its uuids are not known."
        )
    return notes
