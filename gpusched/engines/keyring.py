"""The keys of one attempt of a group: its nodes are told them, and keep them in files no longer than they run."""

import tempfile
from pathlib import Path

from gpusched.keys import ALLOWED, SERVER, make_server_key, new_key
from gpusched.supervisor.hosts import FIRST_KEY

__all__ = ["fresh_keys"]


def fresh_keys(job: str) -> dict[str, str]:
    """Return a learner's key files and one for its actors, by name with what they hold. Raises HostFault."""
    with tempfile.TemporaryDirectory() as made:
        keys = Path(made) / "keys"
        make_server_key(keys, job)
        new_key(keys, FIRST_KEY)
        return {name: (keys / name).read_text() for name in (SERVER, ALLOWED, f"{FIRST_KEY}.key")}
