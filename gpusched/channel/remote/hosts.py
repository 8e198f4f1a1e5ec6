"""The hosts that joined: which key each name belongs to, the answers that they get, and joined.json.

Bookkeeping of the learner's side. A host's name is the last part of its actors' names: `actor.3@lab2`. A learner that
is started again finds the names and their keys where it wrote them, in `joined.json`.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gpusched.channel.messages import PROTOCOL, Refused
from gpusched.channel.registry import other_protocol
from gpusched.channel.transport import log
from gpusched.channel.values import ActorStatus
from gpusched.environment import JOINED_HOSTS
from gpusched.joining.invitation import RANKS_PER_HOST, Invitation, Invited, Join, read_invitation
from gpusched.linux.files import replace_file
from gpusched.linux.regular_files import read_regular

__all__ = ["Hosts"]

_MOST: Final = 1000
_MOST_OF_A_KEY: Final = 250
_LONGEST_NAME: Final = 32
_MOST_BYTES: Final = 1 << 20  # more than the file has of that many hosts


class _Host(msgspec.Struct, kw_only=True):
    """One host, as in joined.json. `batches` and `bytes`: what its actors sent."""

    host: str
    actors: int = 0
    connected: int = 0
    batches: int = 0
    bytes: int = 0
    address: str = ""
    key: str = ""
    """The public one, "" without."""
    number: int = 0
    """Which of all joinings it was."""
    nonce: str = ""
    """Distinguishes the joining of this host from others that ask."""


class Hosts:
    """All of one learner. `run_dir` None: no host can be invited, and nothing is written.

    `keyless`: the learner listens without keys, so that names on other hosts belong to no key. `has_nodes`: so do nodes
    of its own launch, whose actors have names like those on its own.
    """

    def __init__(self, run_dir: Path | None, *, keyless: bool, has_nodes: bool = False) -> None:
        self._run_dir = run_dir
        self._keyless = keyless
        self._has_nodes = has_nodes
        self._invitation: Invitation | None = None
        self._by_name = {host.host: host for host in _former(run_dir)}
        self._joinings = max((host.number for host in self._by_name.values()), default=0)
        self._before = {host.host: (host.batches, host.bytes) for host in self._by_name.values()}
        self._written = b""
        self._complained = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_name)

    def invite(self, user: str, join: Join, address: str) -> Invited | Refused:
        """Answer a host that asks; the same, if it asks again."""
        if join.protocol != PROTOCOL:
            return other_protocol(join.protocol)
        if self._invitation is None and self._run_dir is not None:
            self._invitation = read_invitation(self._run_dir)
        if self._invitation is None:
            return Refused("uninvited", "this learner has no invitation for a host that joins: it was not launched")
        if not user and not self._keyless:
            return Refused("identity", "to join takes a key")
        host = self._asked_before(user, join) or self._add(self._free_name(join.host), user, join.nonce)
        if host is None:
            return Refused("full", "too many hosts have joined")
        host.address = address
        return Invited(host.host, RANKS_PER_HOST * host.number, self._invitation)

    def refusal(self, user: str, name: str, address: str) -> Refused | None:
        """Return why `user` may not have an actor of that name, None if they may."""
        where = name.partition("@")[2]
        if not where and self._has_nodes:
            return None
        if not user and (not where or not self._keyless):
            return Refused("identity", f"{name}: a name on another host takes a key") if where else None
        if not where:
            return Refused("identity", f"{name}: with a key, a name has its host: {name}@HOST")
        host = self._by_name.get(where) or self._add(where, user, "")
        if host is None:
            return Refused("full", "too many hosts have joined")
        if host.key != user:
            return Refused("identity", f"the host {where} has another key")
        host.address = address
        return None

    def news(self, actors: Iterable[ActorStatus]) -> bytes | None:
        """Return what is to be written, None if nothing changed; `actors` are all that the learner knows."""
        for host in self._by_name.values():
            host.actors = host.connected = 0
            host.batches, host.bytes = self._before.get(host.host, (0, 0))
        for actor in actors:
            found = self._by_name.get(actor.name.partition("@")[2])
            if found is not None:
                found.actors += 1
                found.connected += actor.connected
                found.batches += actor.batches
                found.bytes += actor.bytes
        content = msgspec.json.encode(list(self._by_name.values())) if self._by_name else b""
        return None if content == self._written else content

    def write(self, content: bytes) -> None:
        """Replace joined.json. A run directory that cannot be written costs the news, not the training."""
        self._written = content
        if self._run_dir is None:
            return
        try:
            replace_file(
                self._run_dir / JOINED_HOSTS, content, synced=False
            )  # after a crash of the host the job is over
        except OSError as error:
            if not self._complained:
                log.warning("%s cannot be written: %s", self._run_dir / JOINED_HOSTS, error.strerror)
            self._complained = True

    def _asked_before(self, user: str, join: Join) -> _Host | None:
        if not join.nonce:
            return None
        return next(
            (host for host in self._by_name.values() if (host.key, host.nonce) == (user, join.nonce)),
            None,
        )

    def _add(self, name: str, user: str, nonce: str) -> _Host | None:
        if not self._has_room(user):
            self._forget_idle(user)
            if not self._has_room(user):
                return None
        self._joinings += 1
        self._by_name[name] = host = _Host(host=name, key=user, number=self._joinings, nonce=nonce)
        return host

    def _has_room(self, user: str) -> bool:
        of_the_key = sum(host.key == user for host in self._by_name.values())
        return len(self._by_name) < _MOST and of_the_key < _MOST_OF_A_KEY

    def _forget_idle(self, user: str) -> None:
        """Forget the hosts of this key of which no actor is connected, and of others those of which none has come.

        The latter found that they had other code, or no room.
        """
        self._by_name = {
            name: host
            for name, host in self._by_name.items()
            if host.connected or (host.key != user and (host.actors or host.batches))
        }

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._by_name:
            number += 1
            name = f"{wanted[: _LONGEST_NAME - len(str(number)) - 1]}-{number}"
        return name


def _former(run_dir: Path | None) -> list[_Host]:
    if run_dir is None:
        return []
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(read_regular(run_dir / JOINED_HOSTS, _MOST_BYTES), type=list[_Host])
    return []
