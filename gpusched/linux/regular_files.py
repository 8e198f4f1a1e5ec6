"""Files in directories that a job can write: opened only if they are regular, never waited for, read up to a limit.

A job may put a pipe, a socket, a device, a link or 10 GB of nothing in the place of any of its files, and open(2) of a
pipe waits for its other end for as long as there is none. Code that reads or writes such a file does it through these
functions. The guard imports this module, so it needs nothing but what the interpreter brings.
"""

import errno
import os
import stat

__all__ = [
    "NotRegularError",
    "append_regular",
    "last_lines",
    "next_data",
    "next_hole",
    "open_beneath",
    "open_regular",
    "read_from",
    "read_regular",
    "read_tail",
    "tail_lines",
]

_TAIL_BYTES = 65536
_SAFE = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
}
_ODD = (errno.ENXIO, errno.ELOOP, errno.EISDIR, errno.ENODEV, errno.EWOULDBLOCK)
"""What open(2) of something else ends with: a socket or a pipe without reader, a link, a directory, a lost device."""


class NotRegularError(OSError):
    """Something else than a file of ours is in its place; `strerror` has what it is."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        super().__init__(errno.EINVAL, f"not a file of ours, but {what}", os.fspath(path))


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of the regular file `path`, open as `flags` of open(2) want it; it never blocks.

    Raises NotRegularError for anything else that is there, a symbolic link included, and OSError.
    """
    try:
        descriptor = os.open(path, flags | _SAFE, mode)
    except OSError as error:
        if error.errno in _ODD and (what := _kind(path)) is not None:
            raise NotRegularError(path, what) from None
        raise
    return _regular(descriptor, path)


def open_beneath(directory: str | os.PathLike[str], name: str) -> int:
    """Return a descriptor of the regular file `name`, such as "a/b.png", beneath a directory, for reading.

    No part of the name is followed if it is a symbolic link, or "..". Raises OSError as open_regular does.
    """
    *folders, last = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in (*folders, last)):
        raise FileNotFoundError(errno.ENOENT, "no name of a file", name)
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            further = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = further
        descriptor = os.open(last, os.O_RDONLY | _SAFE, dir_fd=at)
    finally:
        os.close(at)
    return _regular(descriptor, name)


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of the regular file `path`. Raises NotRegularError too if it is over `most` bytes; OSError."""
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size > most:
            raise NotRegularError(path, f"one of {size} bytes, more than {most}")
        content = os.read(descriptor, size + 1)
        while len(content) <= most and (more := os.read(descriptor, most)):  # it has grown meanwhile
            content += more
        return content[:most]
    finally:
        os.close(descriptor)


def read_tail(path: str | os.PathLike[str], most: int, after: int = 0) -> bytes:
    """Return the last `most` bytes of the regular file `path`, none before the position `after`. Raises OSError."""
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, most, max(after, os.fstat(descriptor).st_size - most))
    finally:
        os.close(descriptor)


def read_from(path: str | os.PathLike[str], position: int, most: int) -> tuple[bytes, int]:
    """Return up to `most` bytes of the regular file `path` after `position`, and after its hole there; and their start.

    Raises OSError.
    """
    descriptor = open_regular(path, os.O_RDONLY)
    try:
        begin = next_data(descriptor, position)
        return os.pread(descriptor, max(0, min(most, next_hole(descriptor, begin) - begin)), begin), begin
    finally:
        os.close(descriptor)


def tail_lines(path: str | os.PathLike[str]) -> list[bytes]:
    """Return the lines in the last 64 KiB of a file, with their ends; none if it cannot be read."""
    try:
        return read_tail(path, _TAIL_BYTES).splitlines(keepends=True)
    except OSError:
        return []


def last_lines(path: str | os.PathLike[str], count: int) -> list[str]:
    """Return the last `count` lines of a log within its last 64 KiB; none if it cannot be read."""
    return [line.decode(errors="replace").rstrip("\r\n") for line in tail_lines(path)[-count:]]


def append_regular(path: str | os.PathLike[str], content: bytes) -> None:
    """Append to the regular file `path`, made with mode 0600 if it is missing. Raises OSError, also on a full disk."""
    descriptor = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def next_data(descriptor: int, position: int) -> int:
    """Return where the content of a file goes on after the hole at `position`, or `position` if there is none.

    A file that was cut short, or never written there, has a hole (lseek(2)): of 10 GB it may hold nothing.
    """
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(descriptor).st_size if error.errno == errno.ENXIO else position


def next_hole(descriptor: int, position: int) -> int:
    """Return where the first hole of a file after the content at `position` begins, or where the file ends."""
    try:
        return os.lseek(descriptor, position, os.SEEK_HOLE)
    except OSError:  # a file system that knows none, or a position behind the end
        return os.fstat(descriptor).st_size


def _regular(descriptor: int, path: str | os.PathLike[str]) -> int:
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise NotRegularError(path, _KINDS.get(stat.S_IFMT(found), "of another kind"))
    return descriptor


def _kind(path: str | os.PathLike[str]) -> str | None:
    try:
        found = os.lstat(path).st_mode
    except OSError:
        return None
    return _KINDS.get(stat.S_IFMT(found))
