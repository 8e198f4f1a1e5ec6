"""CURVE keys of a job that listens on the network: its own, those that it hands out, and the list of valid ones.

In a job's directory `keys`, which is its user's alone as all files in it are: `server.key` is the job's own and for its
learner only; `NAME.key` is what a host needs to join; `allowed.json` lists the keys that are let in, and revoked ones.
A key is 32 bytes as 40 characters of Z85 (rfc.zeromq.org/spec/32); a secret one is in no argument, environment or log.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gpusched.errors import HostFault, NotFound, UsageError
from gpusched.linux.files import make_private, replace_file
from gpusched.linux.regular_files import open_regular, read_regular

if TYPE_CHECKING:
    import zmq

__all__ = [
    "ALLOWED",
    "SERVER",
    "AllowList",
    "JoinKey",
    "Listed",
    "ServerKey",
    "listed",
    "make_server_key",
    "new_key",
    "read_join_key",
    "read_server_key",
    "revoke",
    "secure_client",
    "secure_server",
]

SERVER: Final = "server.key"
ALLOWED: Final = "allowed.json"
_DOMAIN: Final = "gpusched"  # without one, or not enforced, libzmq lets in any client with the server's public key
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_LONGEST: Final = 1 << 20
_LOCK_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.01


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key that shows itself, in a log or a traceback, without its secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in {"server", "secret"}]


class ServerKey(_Key, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the learner of `job` has."""

    job: str
    public: str
    secret: str


class JoinKey(_Key, frozen=True, kw_only=True):
    """What a host that joins `job` has: the learner's public key, and a pair of their own, listed there as `name`."""

    job: str
    name: str
    server: str
    public: str
    secret: str


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a job has handed out. `created` and `revoked` in Unix seconds; None: it is good."""

    name: str
    public: str
    created: float
    revoked: float | None = None


Key = TypeVar("Key", ServerKey, JoinKey)


def make_server_key(directory: Path, job: str) -> Path:
    """Return the job's own key file, made if there is none yet. Raises HostFault."""
    path = directory / SERVER
    try:
        make_private(directory)
        if not path.exists():
            public, secret = _pair()
            replace_file(path, msgspec.json.encode(ServerKey(job=job, public=public, secret=secret)))
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None
    return path


def new_key(directory: Path, name: str) -> Path:
    """Make a key for a host that is to join, list it as allowed, and return its file.

    Raises UsageError for a name that cannot be or is taken, NotFound for a job without keys, HostFault.
    """
    if not _NAME.fullmatch(name) or f"{name}.key" == SERVER:
        raise UsageError(f"{name!r} cannot be a key's name", "use letters, digits, and . _ -, a letter or digit first")
    server = read_server_key(directory / SERVER)
    with _changing(directory):
        known = listed(directory)
        if any(key.name == name for key in known):
            raise UsageError(f"there is a key {name!r} of {server.job} already", "see `gpusched keys list`")
        public, secret = _pair()
        key = JoinKey(job=server.job, name=name, server=server.public, public=public, secret=secret)
        path = directory / f"{name}.key"
        try:
            replace_file(path, msgspec.json.encode(key))
        except OSError as error:
            raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None
        _save(directory, (*known, Listed(name=name, public=public, created=time.time())))
    return path


def listed(directory: Path) -> tuple[Listed, ...]:
    """Return all keys that were handed out, oldest first. Raises HostFault for a list that cannot be read."""
    path = directory / ALLOWED
    try:
        return msgspec.json.decode(read_regular(path, _LONGEST), type=tuple[Listed, ...])
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make it readable") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HostFault(f"{path}: {error}", "no host can join until it is mended or removed") from None


def revoke(directory: Path, name: str) -> None:
    """Let no peer in with the key of that name; its connections end within seconds. Raises NotFound, HostFault."""
    with _changing(directory):
        known = listed(directory)
        if name not in {key.name for key in known}:
            raise NotFound(f"there is no key {name!r}", "see `gpusched keys list`")
        now = time.time()
        changed = (
            msgspec.structs.replace(key, revoked=now) if key.name == name and key.revoked is None else key
            for key in known
        )
        _save(directory, tuple(changed))
    (directory / f"{name}.key").unlink(missing_ok=True)


def read_server_key(path: Path) -> ServerKey:
    """Return the learner's key. Raises NotFound if there is none, UsageError for a file that others may read."""
    return _read(path, ServerKey)


def read_join_key(path: Path, *, any_file: bool = False) -> JoinKey:
    """Return the key of a joining host. Raises NotFound if there is none, UsageError for a file that others may read.

    With `any_file` it may be a link or a pipe, as `<(pass show key)` of a shell is: it is read as long as it takes.
    """
    return _read(path, JoinKey, any_file=any_file)


def secure_server(socket: "zmq.Socket[bytes]", key: ServerKey) -> None:
    """Admit peers to what `socket` binds from now on by CURVE only, if a ZAP handler accepts them: without it, none."""
    import zmq

    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
    socket.setsockopt_string(zmq.ZAP_DOMAIN, _DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def secure_client(socket: "zmq.Socket[bytes]", key: JoinKey) -> None:
    """Let what `socket` connects to from now on be only the learner that has the other half of `key.server`."""
    import zmq

    socket.setsockopt(zmq.CURVE_SERVERKEY, key.server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())


class AllowList:
    """The valid keys: the list beside a learner's key, read again when it has changed. One thread uses it."""

    def __init__(self, server_key: Path) -> None:
        self._directory = server_key.parent
        self._read_as: tuple[int, int, int] | None = None
        self._names: dict[str, str] = {}
        self._former: dict[str, str] = {}

    def name_of(self, public: str) -> str | None:
        """Return the name of that key, None if it is not let in. With a list that cannot be read, none is."""
        self._refresh()
        return self._names.get(public)

    def why_not(self, public: str) -> str:
        """Return as text why that key is not let in, as name_of() found it last."""
        name = self._former.get(public)
        if self._read_as is None:
            return "there is no list of keys that can be read"
        return "its key is not listed" if name is None else f"its key {name!r} was revoked"

    def _refresh(self) -> None:
        try:
            found = (self._directory / ALLOWED).stat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if mark != self._read_as:
                keys = listed(self._directory)
                self._names = {key.public: key.name for key in keys if key.revoked is None}
                self._former = {key.public: key.name for key in keys if key.revoked is not None}
                self._read_as = mark
        except (OSError, HostFault):
            self._names, self._read_as = {}, None


@contextmanager
def _changing(directory: Path) -> Iterator[None]:
    """Let one at a time change the list. Raises NotFound where there is no such directory, HostFault."""
    path = directory / f"{ALLOWED}.lock"
    try:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        raise NotFound(f"there are no keys in {directory}", "see `gpusched keys --help`") from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "see that the state directory is writable") from None
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HostFault(f"{path} is locked by another process", f"see which one: fuser -v {path}") from None
            time.sleep(_POLL_S)


def _pair() -> tuple[str, str]:
    import zmq

    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _save(directory: Path, keys: tuple[Listed, ...]) -> None:
    try:
        replace_file(directory / ALLOWED, msgspec.json.format(msgspec.json.encode(keys)))
    except OSError as error:
        raise HostFault(f"{directory / ALLOWED}: {error.strerror}", "see that the disk has room") from None


def _read(path: Path, kind: type[Key], *, any_file: bool = False) -> Key:
    try:
        mode = path.stat()
        if mode.st_mode & 0o077:
            raise UsageError(f"{path}: others may read this key", f"chmod 600 {path}")
        key = msgspec.json.decode(_any_content(path) if any_file else read_regular(path, _LONGEST), type=kind)
    except FileNotFoundError:
        raise NotFound(f"there is no key file {path}", "see `gpusched keys --help`") from None
    except OSError as error:
        raise HostFault(f"{path}: {error.strerror}", "make it readable for you") from None
    except (msgspec.MsgspecError, UnicodeDecodeError):  # their texts may hold a part of the key
        raise UsageError(f"{path} is no key file of gpusched", "see `gpusched keys --help`") from None
    parts = (key.public, key.secret, key.server if isinstance(key, JoinKey) else key.public)
    if not all(_KEY.fullmatch(part) for part in parts):
        raise UsageError(f"{path}: its keys are not 40 characters of Z85", "copy the file once more")
    return key


def _any_content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST)
