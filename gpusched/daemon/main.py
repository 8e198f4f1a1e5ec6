"""The daemon as a process: one for a user and a state directory, from its lock to its end."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from gpusched.control.place import control_socket, private_directory
from gpusched.daemon.delivery_process import delivery_spawner
from gpusched.daemon.devices import Devices
from gpusched.daemon.loop import Loop, Signals
from gpusched.daemon.lost_queue import call_lost, jobs_without_database
from gpusched.daemon.monitor import DeviceMonitor
from gpusched.daemon.server import Server
from gpusched.daemon.service_notify import Notifier
from gpusched.daemon.starter import fork_servers, raise_limit, starter
from gpusched.daemon.starting_jobs import StartingJobs
from gpusched.daemon.state import DaemonState
from gpusched.errors import GpuschedError, HostFault
from gpusched.linux.file_locks import lock
from gpusched.linux.files import make_private
from gpusched.linux.processes import become_subreaper
from gpusched.linux.regular_files import open_regular
from gpusched.probe.nvml import NvmlProbe
from gpusched.probe.nvml_events import NvmlEvents
from gpusched.settings import Settings, load_settings
from gpusched.storage.job_table import JobTable
from gpusched.storage.store import Store

__all__ = ["AnotherDaemon", "main", "serve"]

_LOG: Final = logging.getLogger(__name__)
_MOST_PID: Final = 100


class AnotherDaemon(GpuschedError):
    """There is a daemon for this state directory already. By its exit code systemd knows not to try again."""

    exit_code = 2


class Lock:
    """STATE_DIR/daemon.lock, held: its holder is the daemon. Raises AnotherDaemon, HostFault."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "daemon.lock"
        try:
            make_private(state_dir)
            self._descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT)
            if not lock(self._descriptor, 0):
                pid = os.pread(self._descriptor, _MOST_PID, 0).decode(errors="replace").strip()
                os.close(self._descriptor)
                raise AnotherDaemon(f"a daemon runs for {state_dir}: process {pid}", "see: gpusched daemon status")
            with suppress(OSError):  # a full disk; a client can ask the socket for the pid
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            hint = "make it writable, or set GPUSCHED_STATE_DIR to another directory"
            raise HostFault(f"{self._path}: {error.strerror}", hint) from None

    def is_own(self) -> bool:
        """Return whether the file that others find is still the one that is locked."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        """Let another daemon begin."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def serve(settings: Settings, environ: Mapping[str, str], ready: Callable[[], None]) -> None:
    """Be the daemon until asked to end; call `ready` once it serves. Raises AnotherDaemon, HostFault, UsageError."""
    socket = control_socket(settings)
    private_directory(settings.runtime_dir)
    with ExitStack() as stack:
        own = Lock(settings.state_dir)
        stack.callback(own.release)
        with suppress(OSError):  # so that the guards of a fork server that has ended are waited for, by this process
            become_subreaper()
        database = settings.state_dir / "gpusched.db"
        without = jobs_without_database(database, settings.state_dir / "jobs")
        jobs = JobTable(Store.open(database), settings.notify)
        stack.callback(jobs.store.close)
        probe, events = NvmlProbe(settings.driver_patience_s), NvmlEvents()
        stack.callback(events.close)
        devices = Devices(settings, probe.read)
        devices.load()
        devices.await_first(time.monotonic())
        signals = Signals()
        server = Server(socket)  # from here on there is a daemon to be found, and it answers at once
        stack.callback(server.close)
        limit = raise_limit()
        spawn, forks = starter(environ, limit), fork_servers(environ, limit)
        state = DaemonState(
            settings=settings,
            jobs=jobs,
            devices=devices,
            starts=StartingJobs(settings, spawn, forks),
            spawn_delivery=delivery_spawner(settings, environ, limit),
        )
        call_lost(state, without)
        loop = Loop(state, server, signals, DeviceMonitor(state, events), Notifier(environ), own.is_own)
        loop.begin()
        ready()
        _LOG.info("the daemon serves %s", settings.state_dir)
        loop.run()
        _LOG.info("the daemon ends")


def main(pipe: BinaryIO | None = None) -> int:
    """Run the daemon in this process and return its exit code; `pipe` gets `ready`, `another` or an error as JSON."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    try:
        settings = load_settings(os.environ)
        serve(settings, dict(os.environ), partial(_reply, pipe, b"ready"))
    except AnotherDaemon as error:
        _reply(pipe, b"another")
        _LOG.info("%s", error.message)
        return error.exit_code
    except GpuschedError as error:
        _LOG.error("%s", error)
        _reply(pipe, json.dumps({"code": error.code, "message": error.message, "hint": error.hint}).encode())
        return error.exit_code
    return 0


def _reply(pipe: BinaryIO | None, answer: bytes) -> None:
    """Answer the process that started the daemon and waits for one answer; None: none waits."""
    if pipe is not None and not pipe.closed:
        with suppress(OSError), pipe:
            pipe.write(answer)
