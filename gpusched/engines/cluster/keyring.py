"""The keys of one attempt of a group: its nodes receive them, and keep them in files no longer than they run."""

import tempfile
from pathlib import Path

import msgspec

from gpusched.execution.hosts import FIRST_KEY
from gpusched.joining.keys import ALLOWED, SERVER, make_server_key, new_key
from gpusched.model.cluster_job import NodeOrder

__all__ = ["fresh_keys", "order_of"]


def fresh_keys(job: str) -> dict[str, str]:
    """Return a learner's key files and one for its actors, by name with what they hold. Raises HostFault."""
    with tempfile.TemporaryDirectory() as made:
        keys = Path(made) / "keys"
        make_server_key(keys, job)
        new_key(keys, FIRST_KEY)
        return {name: (keys / name).read_text() for name in (SERVER, ALLOWED, f"{FIRST_KEY}.key")}


def order_of(whole: NodeOrder, number: int) -> NodeOrder:
    """Return the order for node `number`. The learner's own keys are for its node alone."""
    actors = f"{FIRST_KEY}.key"
    keys = whole.keys if number == 0 else {actors: whole.keys[actors]}
    return msgspec.structs.replace(whole, number=number, keys=keys)
