"""How a job reaches other hosts: the keys and the invitation in its directory, and what its replicas get of them.

STATE_DIR/jobs/snake-4/keys/     0700
    server.key, allowed.json     of a job that listens (joining/keys.py)
    join.key                     there: what the first host needs to join; of a job whose learner is elsewhere: its copy
STATE_DIR/keys/                  0700; the keys of jobs that wait in the queue to join
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from gpusched.errors import HostFault, UsageError
from gpusched.execution.directory import JobDirectory
from gpusched.execution.hosts import FIRST_KEY, KEYS, are_of_this_start, join_key, learner_role
from gpusched.joining.keys import JoinKey, listed, make_server_key, new_key, read_join_key
from gpusched.joining.tcp import Tcp
from gpusched.linux.files import make_private, replace_file
from gpusched.model.job import Joining, Listening, Network, NodeActors
from gpusched.model.workload import Workload

__all__ = ["check_network", "keep_key", "make_keys", "prepare_network", "require_keys_or_loopback", "require_open"]

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def check_network(workload: Workload, network: Network | None) -> None:
    """Raise UsageError for what no command of ours would ask of a job's network."""
    match network:
        case Listening(path=path):
            require_open(workload)
            learner_role(workload)
            require_keys_or_loopback(Tcp.to_listen(network.endpoint, "--listen"), insecure=network.insecure)
        case Joining(key=path):
            require_keys_or_loopback(Tcp.parse(network.endpoint, "the endpoint"), insecure=path is None)
            if not _HOST.fullmatch(network.host):
                raise UsageError(f"{network.host!r} is no name for a host", "join again")
        case NodeActors(key=path):
            require_keys_or_loopback(Tcp.parse(network.endpoint, "the endpoint"), insecure=path is None)
        case _:
            return
    if path is not None and ("\0" in path or not Path(path).is_absolute()):
        raise UsageError(f"{workload.name}: {path!r} is no absolute path", "submit it again")


def require_open(workload: Workload) -> None:
    """Raise UsageError for a workload whose learner cannot take actors of other hosts, with these settings or any."""
    if not workload.listen:
        message = (
            f"{workload.name}, as it was configured, takes no actors of other hosts (job.listen in its workload.toml)"
        )
        raise UsageError(message, "run it on one host, without --listen")


def require_keys_or_loopback(to: Tcp, *, insecure: bool) -> None:
    """Raise UsageError where any host could listen, or send: without keys, beyond this host."""
    if insecure and not to.loopback:
        message = (
            f"{to.endpoint}: without keys, any host that reaches this port could feed the job and read its weights"
        )
        raise UsageError(message, "--insecure is for loopback only, tcp://127.0.0.1:PORT; leave it out to have keys")


def prepare_network(directory: JobDirectory, workload: str, options: bytes, network: Network | None) -> None:
    """Leave in the job's directory what its replicas need to be reached, or to reach: before they start.

    A job that is started again keeps its keys, and knows the hosts that joined it. Raises HostFault; and of a job whose
    learner is elsewhere NotFound and UsageError for its key file.
    """
    match network:
        case Listening():
            from gpusched.joining.invitation import (  # most jobs stay on one host
                invitation,
                write_invitation,
            )

            if not network.insecure and not are_of_this_start(network):  # those are given, and others know them, too
                make_keys(directory.path / KEYS, directory.path.name)
            invited = invitation(
                directory.path.name, workload, None if network.path is None else Path(network.path), options
            )
            write_invitation(directory.path, msgspec.structs.replace(invited, versions=network.versions))
        case Joining(key=str() as key) | NodeActors(key=str() as key):
            _write_key(read_join_key(Path(key)), join_key(directory.path))
        case _:
            pass


def keep_key(state_dir: Path, key: JoinKey) -> Path:
    """Keep a key for a job that will start later, and return where. Raises HostFault.

    The file that it came from may be gone by then, or in a /tmp that the daemon does not see.
    """
    from hashlib import blake2s

    mark = blake2s(key.public.encode(), digest_size=8).hexdigest()
    path = state_dir / KEYS / f"{mark}.key"
    _write_key(key, path)
    return path


def make_keys(directory: Path, job: str) -> None:
    """Make the key of a job's learner and the first one for joining hosts, if they are not there. Raises HostFault."""
    make_server_key(directory, job)
    if all(one.name != FIRST_KEY for one in listed(directory)):
        new_key(directory, FIRST_KEY)


def _write_key(key: JoinKey, path: Path) -> None:
    try:
        make_private(path.parent)
        replace_file(path, msgspec.json.encode(key))
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None
