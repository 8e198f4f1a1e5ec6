"""A job and other hosts, as values: where its replicas find the others, and what people see of it."""

from pathlib import Path
from typing import Final

import msgspec

from gpusched.environment import JOINED_HOSTS, Addresses
from gpusched.errors import UsageError
from gpusched.joining.keys import SERVER
from gpusched.linux.files import remove_tree
from gpusched.linux.regular_files import read_regular
from gpusched.model.job import ClusterJobRef, Joining, Listening, Network, NodeActors
from gpusched.model.plan import Replica
from gpusched.model.status import JobStatus, JoinedHost, JoinedJob
from gpusched.model.workload import Workload

__all__ = [
    "FIRST_KEY",
    "KEYS",
    "addresses",
    "are_of_this_start",
    "join_key",
    "key_directory",
    "learner_role",
    "remove_former_keys",
    "remove_keys_of_start",
    "with_joined",
    "with_network",
]

FIRST_KEY: Final = "join"
"""The name of the key that a launch makes for the first host to join; more are made by hand."""

KEYS: Final = "keys"
"""The directory of keys, in that of a job."""

_MOST_JOINED: Final = 4 << 20


def learner_role(workload: Workload) -> str:
    """Return the role that takes what actors send: `learner`, else the leader. Raises UsageError if there is none."""
    names = {role.name: role for role in workload.roles}
    found = names.get("learner") or names.get(workload.leader or "")
    if found is None:
        message = f"workload {workload.name} has no role `learner` and no leader, so nothing in it could listen"
        raise UsageError(message, "name the role that takes batches `learner`, or make it the leader in [job]")
    if found.count != 1:
        message = f"workload {workload.name} has {found.count} replicas of {found.name}, and only one can listen"
        raise UsageError(message, "give that role a count of 1")
    return found.name


def join_key(job: Path) -> Path:
    """Return the file of the key that a launch makes for others; of a job whose learner is elsewhere, its own copy."""
    return job / KEYS / f"{FIRST_KEY}.key"


def are_of_this_start(network: Network | None) -> bool:
    """Return whether the job's keys are of no use after it: an engine makes new ones for each start on a cluster."""
    return isinstance(network, Listening | NodeActors) and network.incarnation > 0


def key_directory(job: Path, network: Network | None) -> Path:
    """Return where the keys of a job lie. On a cluster a learner's next start may come before the last is over."""
    start = network.incarnation if isinstance(network, Listening) else 0
    return job / (f"{KEYS}.{start}" if start else KEYS)


def remove_keys_of_start(job: Path, network: Network | None) -> None:
    """Remove the keys of a job that is over, where they were made for this start of it alone."""
    if are_of_this_start(network):
        remove_tree(key_directory(job, network))


def remove_former_keys(job: Path, last: int) -> None:
    """Remove the keys of all starts of a job up to the `last`: one that was killed could not do so itself."""
    for keys in job.glob(f"{KEYS}.*"):
        start = keys.name.removeprefix(f"{KEYS}.")
        if start.isascii() and start.isdigit() and int(start) <= last:  # anything else is none of ours
            remove_tree(keys)


def addresses(network: Network | None, directory: Path, socket: Path, replica: Replica, learner: str) -> Addresses:
    """Return where the others of `replica` are; `socket` is the job's own, and `learner` the role that may listen."""
    match network:
        case Joining() | NodeActors():
            keys = None if network.key is None else str(join_key(directory))
            there = Addresses(network.endpoint, keys, patience_s=network.patience_s)
            if isinstance(network, NodeActors):
                return there._replace(incarnation=network.incarnation)
            return there._replace(joined=network.host, first_rank=network.first_rank)
        case Listening():
            here = Addresses(f"ipc://{socket}", incarnation=network.incarnation)
            if replica.role != learner:
                return here
            keys = None if network.insecure else str(key_directory(directory, network) / SERVER)
            return here._replace(listen=network.endpoint, keys=keys)
        case _:
            return Addresses(f"ipc://{socket}")


def with_network(status: JobStatus, network: Network | None) -> JobStatus:
    """Return `status` as that of a job that reaches other hosts so."""
    match network:
        case Listening():
            return msgspec.structs.replace(status, listen=network.endpoint)
        case Joining():
            joins = JoinedJob(endpoint=network.endpoint, job=network.job, host=network.host)
            return msgspec.structs.replace(status, joins=joins)
        case ClusterJobRef():
            return msgspec.structs.replace(status, engine=network.engine)
        case NodeActors():
            return msgspec.structs.replace(status, joins=JoinedJob(endpoint=network.endpoint, job=network.job))
        case _:
            return status


def with_joined(status: JobStatus) -> JobStatus:
    """Return `status` with the hosts that have joined, as the job's learner wrote last; none where it wrote nothing."""
    if status.listen is None:
        return status
    try:
        content = read_regular(Path(status.run_dir) / JOINED_HOSTS, _MOST_JOINED)
        joined = msgspec.json.decode(content, type=tuple[JoinedHost, ...])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return status
    return msgspec.structs.replace(status, joined=joined)
