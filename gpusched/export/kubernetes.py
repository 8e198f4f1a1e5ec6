"""A plan as manifests for Kubernetes: Indexed Jobs, a headless Service for the learner, and the claim of its results.

Replicas that differ in nothing but their rank are one Job. Keys come from a Secret that a person makes; they are in no
manifest. Needs Kubernetes 1.29 (`backoffLimitPerIndex`). Sources: the API reference of batch/v1 and core/v1,
kubernetes.io/docs/concepts/workloads/controllers/job; HAMi's README for `nvidia.com/gpumem` and `gpucores`.
"""

import math
import shlex
from collections.abc import Iterable
from itertools import groupby
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from gpusched.environment import Addresses
from gpusched.errors import UsageError
from gpusched.execution.hosts import FIRST_KEY, learner_role
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
from gpusched.joining.keys import ALLOWED, SERVER
from gpusched.model.plan import Replica
from gpusched.units import fraction_of

__all__ = ["MOST_ACTORS", "ShareResource", "kubernetes"]

ShareResource = Literal["none", "nvidia", "hami"]
"""By what the site gives out GPUs: by nothing, by the NVIDIA device plugin, or by HAMi."""

MOST_ACTORS: Final = 250
"""Each pod is one host to the learner, which takes this number with one key (channel/remote/hosts.py)."""

_PORT: Final = 5555
_WAITS_S: Final = 366 * 86_400
"""An actor that gives up its learner ends as if all were done, and no Job starts it again: here none gives up."""
_KEYS_DIR: Final = "/gpusched/keys"
_SECRET_DIR: Final = "/gpusched/secret"  # noqa: S105 (a directory)
_JOIN: Final = f"{FIRST_KEY}.key"
_SOCKET: Final = "/tmp/gpusched/learner.sock"  # noqa: S108 (the container's own; its directory is made 0700)
_RESULTS: Final = "10Gi"
_LONGEST_LABEL: Final = 63
_ATTEMPT: Final = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
_OF_ONE_REPLICA: Final = ("GPUSCHED_RANK", "GPUSCHED_REPLICA")
_EMPTY: Final[dict[str, object]] = {"emptyDir": {}}


class _Group(NamedTuple):
    """Replicas of one role that differ in nothing but their rank, which is `first.rank` and those that follow it."""

    name: str
    first: Replica
    argv: tuple[str, ...]
    env: dict[str, str]
    size: int


def kubernetes(what: Exported, share: ShareResource, keys: str | None) -> Manifests:
    """Return the manifests; `keys` is the directory of the key files, None if none were made.

    Raises UsageError for a workload in which nothing could listen, or that has too many replicas or too long names.
    """
    learner = learner_role(what.workload)
    groups = _groups(what, share, learner)
    _require_possible(what, groups)
    documents = (
        _service(what, learner),
        _claim(what),
        *(_job(what, group, share, is_learner=group.first.role == learner) for group in groups),
    )
    return Manifests(documents, (*common_notes(what), *_notes(what, share, keys, learner)))


def _groups(what: Exported, share: ShareResource, learner: str) -> list[_Group]:

    def identity(replica: Replica) -> dict[str, str]:
        listens = replica.role == learner
        there = Addresses(
            endpoint=f"ipc://{_SOCKET}" if listens else f"tcp://{what.name}-{word(learner)}:{_PORT}",
            keys=f"{_KEYS_DIR}/{SERVER if listens else _JOIN}",
            listen=f"tcp://0.0.0.0:{_PORT}" if listens else None,
            patience_s=None if listens else _WAITS_S,
        )
        return exported_identity(what, replica, there)

    planned = what.plan.replicas if share != "hami" else tuple(map(_on_virtual_device, what.plan.replicas))
    every = specs(what._replace(plan=replace(what.plan, replicas=planned)), identity)
    alike = [
        (list(run), argv, env)
        for (_, argv, env), run in groupby(
            every,
            key=lambda spec: (spec.replica.role, spec.argv, _environment(what, spec.replica, spec.env, share)),
        )
    ]
    roles = [run[0].replica.role for run, _, _ in alike]
    return [
        _Group(_job_name(what, roles, number), run[0].replica, argv, env, len(run))
        for number, (run, argv, env) in enumerate(alike)
    ]


def _on_virtual_device(replica: Replica) -> Replica:
    """Return the replica as it is on a device that is as large as its share: HAMi shows a process no more of it."""
    if replica.device_uuid is None:
        return replica
    return replace(replica, fraction=fraction_of(replica.limit_mib, replica.share_mib))


def _environment(what: Exported, replica: Replica, env: dict[str, str], share: ShareResource) -> dict[str, str]:
    """Return what all replicas of a group have; a device plugin, not the plan, gives a container its device."""
    common = {name: value for name, value in env.items() if name not in _OF_ONE_REPLICA}
    device = device_of(what, replica)
    if device is None:
        return common
    if share != "none" or what.plan.inventory.source == "profile":
        del common["CUDA_VISIBLE_DEVICES"]
    return common | ({"NVIDIA_VISIBLE_DEVICES": device} if share == "none" else {})


def _job_name(what: Exported, roles: list[str], number: int) -> str:
    """Return `snake-actor`, or, if the role's replicas are several Jobs, `snake-actor-0`."""
    role = roles[number]
    name = f"{what.name}-{word(role)}"
    return name if roles.count(role) == 1 else f"{name}-{number - roles.index(role)}"


def _require_possible(what: Exported, groups: list[_Group]) -> None:
    actors = len(what.plan.replicas) - 1
    if actors > MOST_ACTORS:
        problem = f"{what.name}: {actors} pods besides the learner, which takes {MOST_ACTORS} with one key"
        raise UsageError(problem, f"ask for at most --procs {MOST_ACTORS}")
    require_distinct("Jobs", (group.name for group in groups))
    for group in groups:
        if len(f"{group.name}-{group.size - 1}") > _LONGEST_LABEL:  # the hostname of the last pod
            raise UsageError(f"{group.name} is too long for the name of a Job", "give a shorter name: --name NAME")


def _job(what: Exported, group: _Group, share: ShareResource, *, is_learner: bool) -> dict[str, object]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": group.name, "labels": _labels(what, group.first.role)},
        "spec": {
            "completionMode": "Indexed",
            "completions": group.size,
            "parallelism": group.size,
            "backoffLimitPerIndex": restarts(what.workload, group.first.role),
            "template": {
                "metadata": {"labels": _labels(what, group.first.role)},
                "spec": _pod(what, group, share, is_learner=is_learner),
            },
        },
    }


def _pod(what: Exported, group: _Group, share: ShareResource, *, is_learner: bool) -> dict[str, object]:
    pod: dict[str, object] = {
        "restartPolicy": "Never",  # backoffLimitPerIndex asks for it; the Job makes new pods
        "terminationGracePeriodSeconds": math.ceil(what.workload.stop_grace_s),
        "shareProcessNamespace": True,  # as process 1, a program without a handler would ignore SIGTERM
        "containers": [_container(what, group, share, is_learner=is_learner)],
        "volumes": [
            {"name": "run"} | ({"persistentVolumeClaim": {"claimName": _claim_name(what)}} if is_learner else _EMPTY),
            {"name": "secret", "secret": _secret(what, (SERVER, ALLOWED) if is_learner else (_JOIN,))},
            {"name": "keys", "emptyDir": {"medium": "Memory"}},
        ],
    }
    inventory = what.plan.inventory
    if share == "none" and group.first.device_uuid is not None and inventory.source != "profile":
        pod["nodeSelector"] = {"kubernetes.io/hostname": inventory.host}
    return pod


def _container(what: Exported, group: _Group, share: ShareResource, *, is_learner: bool) -> dict[str, object]:
    env: list[dict[str, object]] = [{"name": name, "value": _escaped(value)} for name, value in group.env.items()]
    env.append({"name": "GPUSCHED_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": _ATTEMPT}}})
    container: dict[str, object] = {
        "name": word(group.first.role),
        "image": what.image,
        "command": ["/bin/sh", "-ec", _begin(group.first), "sh", *map(_escaped, group.argv)],
        "env": env,
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIR},
            {"name": "secret", "mountPath": _SECRET_DIR, "readOnly": True},
            {"name": "keys", "mountPath": _KEYS_DIR},
        ],
    }
    if is_learner:
        container["ports"] = [{"name": "channel", "containerPort": _PORT}]
    asked = _resources(group.first, share, alone=what.plan.policy == "exclusive")
    return container | ({"resources": {"limits": asked}} if asked else {})


def _begin(first: Replica) -> str:
    """Return the script that a container runs before its program: what only the pod knows becomes environment.

    The keys are copied because gpusched takes only files that no other user can read, and those of a Secret
    are not so for every user and fsGroup. Kubernetes leaves `$(...)` alone that is no variable of the container's.
    """
    return f"""\
(umask 077 && cp {_SECRET_DIR}/* {_KEYS_DIR}/)
export GPUSCHED_ATTEMPT="${{GPUSCHED_ATTEMPT:-0}}"
export GPUSCHED_RANK=$((JOB_COMPLETION_INDEX + {first.rank}))
export GPUSCHED_REPLICA={first.role}.$GPUSCHED_RANK
exec "$@"
"""


def _resources(replica: Replica, share: ShareResource, *, alone: bool) -> dict[str, int]:
    """Return what is asked of the site; `nvidia.com/gpumem` in MiB, the context included, as HAMi counts it.

    A plan gives out memory, not computing: all cores are asked for only where no other process is to be on the device.
    """
    if replica.device_uuid is None or share == "none":
        return {}
    if share == "nvidia":
        return {"nvidia.com/gpu": 1}
    return {"nvidia.com/gpu": 1, "nvidia.com/gpumem": replica.share_mib} | (
        {"nvidia.com/gpucores": 100} if alone else {}
    )


def _service(what: Exported, learner: str) -> dict[str, object]:
    """Return the name by which actors find the learner: the address of its pod, whichever that is."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{what.name}-{word(learner)}", "labels": _labels(what, learner)},
        "spec": {
            "clusterIP": "None",
            "selector": _labels(what, learner),
            "ports": [{"name": "channel", "port": _PORT, "targetPort": "channel"}],
        },
    }


def _claim(what: Exported) -> dict[str, object]:
    """Return the claim of the learner's run directory: what it saved is there for the pod that follows it."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": _claim_name(what), "labels": _labels(what)},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": _RESULTS}}},
    }


def _claim_name(what: Exported) -> str:
    return f"{what.name}-run"


def _secret(what: Exported, files: Iterable[str]) -> dict[str, object]:
    return {"secretName": _secret_name(what), "items": [{"key": file, "path": file} for file in files]}


def _secret_name(what: Exported) -> str:
    return f"{what.name}-keys"


def _labels(what: Exported, role: str | None = None) -> dict[str, str]:
    labels = {"app.kubernetes.io/name": word(what.workload.name), "app.kubernetes.io/instance": what.name}
    return labels if role is None else labels | {"app.kubernetes.io/component": word(role)}


def _escaped(text: str) -> str:
    """Return `text` as Kubernetes takes it literally: it puts variables in the place of `$(NAME)`."""
    return text.replace("$", "$$")


def _notes(what: Exported, share: ShareResource, keys: str | None, learner: str) -> list[str]:
    directory = "KEYS" if keys is None else keys
    files = [f"--from-file={shlex.quote(f'{directory}/{file}')}" for file in (SERVER, ALLOWED, _JOIN)]
    notes = [
        "The keys are in no manifest. First make the Secret that holds them:",
        f"  kubectl create secret generic {_secret_name(what)} {' '.join(files)}",
    ]
    if keys is None:
        notes.append("  KEYS: a directory of key files; gpusched export kubernetes ... --keys KEYS makes it.")
    notes += [
        f"Follow the learner: kubectl logs -f job/{what.name}-{word(learner)}",
        f"End it: kubectl delete job,service -l app.kubernetes.io/instance={what.name}",
        f"The results stay in the claim {_claim_name(what)} ({_RESULTS}, of the default storage class).",
    ]
    number = sum(replica.device_uuid is not None for replica in what.plan.replicas)
    return notes + (_share_notes(share, number) if number else [])


def _share_notes(share: ShareResource, number: int) -> list[str]:
    if share == "nvidia":
        return [
            f"It asks for {number} of nvidia.com/gpu: whole GPUs, or turns where the plugin shares them in time.",
            "The plugin, not the plan, decides which pods share a GPU. It limits no memory: they keep to their limits.",
        ]
    if share == "hami":
        return [
            f"It asks HAMi for {number} shares. HAMi, not the plan, decides which are on one GPU; gpumem is in MiB."
        ]
    return [
        "No resource is asked for: the runtime of the containers must heed NVIDIA_VISIBLE_DEVICES. Nothing shows the",
        "cluster that these GPUs are taken.",
    ]
