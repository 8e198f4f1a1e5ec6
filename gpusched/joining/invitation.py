"""How a host joins a job of another: its question to the learner, the answer, and whether both have the same code.

The two messages are the channel's (channel/messages.py has the others); they stand here because `gpusched join` asks
before it has planned anything, without NumPy. The launch that starts the job writes the invitation.
"""

import hashlib
import math
import os
import platform
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

import gpusched
from gpusched.errors import ChannelError, HostFault, NotFound, ProtocolError, UsageError
from gpusched.frameworks.registry import frameworks
from gpusched.joining.keys import JoinKey, secure_client
from gpusched.linux.files import replace_file, require_descriptors
from gpusched.linux.regular_files import read_regular

if TYPE_CHECKING:
    import zmq

__all__ = [
    "INVITATION",
    "PROTOCOL",
    "RANKS_PER_HOST",
    "Invitation",
    "Invited",
    "Join",
    "differences",
    "invitation",
    "only_ipv6",
    "read_invitation",
    "request_join",
    "versions",
    "write_invitation",
]

PROTOCOL: Final = 7
"""Of the channel: both sides must have the same."""

INVITATION: Final = "invitation.json"
"""In the run directory of a job that listens."""

RANKS_PER_HOST: Final = 1000
"""A replica of a host that joined has a rank that no other has, on whatever host: seeds depend on it."""

_SHARED: Final = "common"
_MOST_FILES: Final = 400  # so that the answer stays a header
_BROKEN_OFTEN: Final = 3
_CONNECT_MS: Final = 3000
_LONGEST_ANSWER: Final = 1 << 20
_MOST_INVITATION: Final = 4 << 20

HostName = Annotated[str, msgspec.Meta(min_length=1, max_length=32, pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
Token = Annotated[str, msgspec.Meta(max_length=32)]


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a host must know to run actors of this job. `options` is the workload's settings as JSON.

    `files`: a digest of each source file in the workload's folder, by its path there. `versions` by what they are of.
    """

    job: str
    workload: str
    options: str
    files: dict[str, str]
    versions: dict[str, str]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """May I send you actors? `host` is what this host calls itself, `nonce` distinguishes one joining from the next."""

    protocol: int
    host: HostName
    nonce: Token


class Invited(msgspec.Struct, frozen=True, array_like=True, tag="invited"):
    """You may: call your actors `actor.7@JOINED`, and give them the ranks from `first_rank` on."""

    joined: HostName
    first_rank: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
    invitation: Invitation


def invitation(job: str, workload: str, path: Path | None, options: bytes) -> Invitation:
    """Return this host's description of a job: its workload file is `path`, its settings `options`."""
    return Invitation(
        job=job,
        workload=workload,
        options=options.decode(),
        files=dict(_digests(path)) if path is not None else {},
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Return the versions, by what they are of, in which two hosts of a job must agree."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"gpusched": gpusched.__version__, "python": platform.python_version().rpartition(".")[0]}
    for package in ("numpy", *(name for one in frameworks() for name in one.compared)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_invitation(directory: Path, invitation: Invitation) -> None:
    """Leave it where the job's learner finds it. Raises HostFault."""
    try:
        replace_file(directory / INVITATION, msgspec.json.encode(invitation))
    except OSError as error:
        raise HostFault(f"{directory / INVITATION}: {error.strerror}", "see that the disk has room") from None


def read_invitation(directory: Path) -> Invitation | None:
    """Return what was left there, None if nothing that can be read was."""
    try:
        return msgspec.json.decode(read_regular(directory / INVITATION, _MOST_INVITATION), type=Invitation)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def differences(theirs: Invitation, ours: Invitation) -> list[str]:
    """Return as text where a host's code and versions differ from the learner's, nothing if they agree."""
    there, here = theirs.versions, ours.versions
    found = [
        f"{what} is {there.get(what, 'not installed')} there and {here.get(what, 'not installed')} here"
        for what in sorted(there.keys() | here.keys())
        if there.get(what) != here.get(what)
    ]
    for name in sorted(theirs.files.keys() | ours.files.keys()):
        if theirs.files.get(name) != ours.files.get(name):
            known = (name in theirs.files, name in ours.files)
            meaning = {(True, True): "differs", (True, False): "is there only", (False, True): "is here only"}
            found.append(f"{name} {meaning[known]}")
    return found


def only_ipv6(endpoint: str) -> bool:
    """Return whether the host of a tcp endpoint has IPv6 addresses and no others. It may ask the name service.

    libzmq resolves addresses of one kind: with ZMQ_IPV6, it never tries IPv4 where a name has both.
    """
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    if host.startswith("["):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # not known now, or no name: libzmq will try
        return False
    return all(family == socket.AF_INET6 for family, *_ in found)


def request_join(endpoint: str, key: JoinKey | None, host: str, timeout_s: float) -> Invited:
    """Ask the learner at `endpoint` and return its answer.

    Raises NotFound if none answers within `timeout_s`, UsageError for a key that is not let in and for an endpoint that
    cannot be, ProtocolError for a learner of another protocol, ChannelError if it lets no host join.
    """
    import zmq

    require_descriptors()
    context = zmq.Context()
    try:
        return _Asking(context, endpoint, key, host).answer(timeout_s)
    finally:
        context.destroy(linger=0)


class _Asking:
    """A connection that asks once it stands, and knows why it does not."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, key: JoinKey | None, host: str
    ) -> None:
        import zmq

        self._endpoint, self._key = endpoint, key
        self._question = msgspec.msgpack.encode(Join(PROTOCOL, host, secrets.token_hex(8)))
        self._link = context.socket(zmq.DEALER)
        for option, value in (
            (zmq.MAXMSGSIZE, _LONGEST_ANSWER),
            (zmq.IMMEDIATE, 1),
            (zmq.CONNECT_TIMEOUT, _CONNECT_MS),
            (zmq.HEARTBEAT_IVL, _CONNECT_MS),
            (zmq.SNDTIMEO, _CONNECT_MS),
            (zmq.IPV6, int(only_ipv6(endpoint))),
        ):
            self._link.setsockopt(option, value)
        if key is not None:
            secure_client(self._link, key)
        self._monitor = self._link.get_monitor_socket()
        self._connected = False
        self._broken = 0
        try:
            self._link.connect(endpoint)
        except zmq.ZMQError as error:
            raise UsageError(f"{endpoint}: {error.strerror}", "give what the launch printed, tcp://HOST:PORT") from None

    def answer(self, timeout_s: float) -> Invited:
        """Wait for the answer; see ask_to_join."""
        import zmq

        poller = zmq.Poller()
        poller.register(self._link, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            ready = dict(poller.poll(math.ceil(left * 1000)))
            if self._monitor in ready:
                self._handle_event()
            if self._link in ready:
                return _understood(self._link.recv_multipart()[0], self._endpoint)
        why = (
            "it was reached, but it did not answer"
            if self._connected
            else "nothing listens there, or a firewall is between"
        )
        raise NotFound(
            f"no learner answered at {self._endpoint} within {timeout_s:.0f} s: {why}",
            "see that the job runs there and that its port can be reached from here",
        )

    def _handle_event(self) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        event = recv_monitor_message(self._monitor)["event"]
        if event == zmq.EVENT_CONNECTED:
            self._connected = True
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            with suppress(zmq.Again):  # it broke again: the next handshake asks
                self._link.send(self._question)
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._break_off()
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and self._key is not None:
            raise UsageError(
                f"the learner at {self._endpoint} does not let in the key {self._key.name!r} of {self._key.job}",
                "it was revoked, or is of another job: ask for a new one, `gpusched keys new JOB NAME`",
            )
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            what = "speaks without keys" if self._key is not None else "wants a key"
            raise UsageError(f"the listener at {self._endpoint} {what}", "give the key file of its job: --key FILE")

    def _break_off(self) -> None:
        """Take in that the other side closed amid the handshake: as a learner with another key does, more than once."""
        self._broken += 1
        if self._key is not None and self._broken >= _BROKEN_OFTEN:
            raise UsageError(
                f"the listener at {self._endpoint} is not the learner of {self._key.job}, whose key this is, "
                "or speaks without keys",
                "each launch has keys of its own: give the key file that this one printed",
            )


def _understood(data: bytes, endpoint: str) -> Invited:
    try:
        return msgspec.msgpack.decode(data, type=Invited)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        tag, *fields = msgspec.msgpack.decode(data, type=list[object])
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        tag, fields = "", []
    if tag == "refused" and len(fields) > 1:
        problem = f"the learner at {endpoint} refuses: {fields[1]}"
        if fields[0] == "protocol":
            raise ProtocolError(problem, "install the same gpusched on both hosts")
        raise ChannelError(problem, "ask the person who runs the job")
    raise ProtocolError(f"{endpoint} answers in an unknown format", "install the same gpusched on both hosts")


def _digests(workload: Path) -> Iterator[tuple[str, str]]:
    """Yield a workload's file and the sources in its folder, and in `common` beside it, which workloads may share.

    Each with a digest; of very many, one of them all.
    """
    folder, every = workload.parent, hashlib.blake2s(digest_size=8)
    shared = (f"../{_SHARED}/{name}" for name in _sources(folder.parent / _SHARED))
    names = sorted({workload.name, *_sources(folder), *shared})
    for number, name in enumerate(names):
        with suppress(OSError):  # it was removed just now, or may not be read
            content = (folder / name).read_bytes()
            every.update(name.encode(errors="surrogateescape") + b"\0" + hashlib.blake2s(content).digest())
            if number < _MOST_FILES:
                yield name, hashlib.blake2s(content, digest_size=8).hexdigest()
    if len(names) > _MOST_FILES:
        yield f"one of {len(names)} files", every.hexdigest()


def _sources(folder: Path) -> Iterator[str]:
    """Yield what Python lies in a folder, but nothing of hidden directories and virtual environments."""
    for place, directories, files in os.walk(folder):
        directories[:] = [one for one in directories if not one.startswith((".", "__pycache__"))]
        if "pyvenv.cfg" in files:
            directories.clear()
            continue
        yield from (str((Path(place) / one).relative_to(folder)) for one in files if one.endswith(".py"))
