"""The messages between the daemon and a fork server. No I/O.

A message is one packet of msgpack, never pickle. What a guard is started with is too large for a packet where
environments are: it lies in a memory file, whose descriptor comes with the packet, before that of supervisor.log.
"""

from typing import Final

import msgspec

from gpusched.zygote.protocol import Loading, Ready, Refused

__all__ = ["DESCRIPTORS", "ForkServerMessage", "GuardEnded", "GuardRequest"]

DESCRIPTORS: Final = 2
"""What comes with the nonce of an attempt: the memory file, and the log of its guard and supervisor."""


class GuardRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory file holds, in bytes as the kernel has them: the command that ps shows, and the environment.

    The command ends with the job's directory and the nonce.
    """

    argv: tuple[bytes, ...]
    env: tuple[tuple[bytes, bytes], ...]


class GuardEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The guard that was forked for the attempt `nonce` has ended, or could not be forked."""

    nonce: str


ForkServerMessage = Ready | GuardEnded | Loading | Refused
