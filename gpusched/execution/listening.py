"""A launch that takes actors of other hosts: the checks before anything starts, and the line that lets one join."""

import errno
import shlex
import socket
from pathlib import Path
from typing import Final

from gpusched.errors import HostFault, UsageError
from gpusched.execution.hosts import join_key, learner_role
from gpusched.execution.network import require_keys_or_loopback, require_open
from gpusched.joining.tcp import Tcp, reachable
from gpusched.model.job import Listening
from gpusched.model.workload import Workload
from gpusched.planner import counted_role

__all__ = ["how_to_join", "listening"]

_OPTION: Final = "--listen"


def listening(workload: Workload, text: str, *, insecure: bool, at_once: bool) -> Listening:
    """Return what makes the workload's learner listen at `text`, which can be had.

    `at_once`: also now, and not only when the job's turn has come. Raises UsageError, and HostFault for a port that
    this user may not have.
    """
    from gpusched.joining.invitation import versions

    to = Tcp.to_listen(text, _OPTION)
    require_keys_or_loopback(to, insecure=insecure)
    require_open(workload)
    learner_role(workload)
    counted_role(workload)
    _require_free(to, at_once=at_once)
    return Listening(
        endpoint=to.endpoint,
        insecure=insecure,
        path=None if workload.path is None else str(workload.path),
        versions=versions(),
    )


def how_to_join(network: Listening, job: Path, procs: str) -> list[str]:
    """Return the line to run elsewhere, whole, so that it can be copied; and below it what that host needs for it.

    `procs`: as many as run here, a size to think in; with none here the line leaves the number to that host.
    """
    many = "" if procs == "0" else f" --procs {procs}"
    to = reachable(Tcp.to_listen(network.endpoint, _OPTION))
    if network.insecure:
        return [f"gpusched join {to.endpoint} --insecure{many}"]
    key = shlex.quote(str(join_key(job)))
    line = f"gpusched join {to.endpoint} --key {key}{many}"
    if to.loopback:
        return [line]
    host = f"[{to.host}]" if ":" in to.host else to.host
    return [line, f"  run it on another host, with a copy there of the key, 0600 as it is here: scp -p {host}:{key} ."]


def _require_free(to: Tcp, *, at_once: bool) -> None:
    """Try whether the learner could bind the address: it sets the same options (zmq_tcp(7))."""
    version6 = ":" in to.host
    try:
        with socket.socket(socket.AF_INET6 if version6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if version6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((to.host, to.port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE or at_once:
            raise _cannot_listen(to, error) from None


def _cannot_listen(to: Tcp, error: OSError) -> HostFault | UsageError:
    message = f"{_OPTION} {to.endpoint}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        return UsageError(message, f"give another port, or see who has this one: ss -ltnp 'sport = :{to.port}'")
    if error.errno == errno.EACCES:
        return HostFault(message, "ports below 1024 are root's: give a higher one")
    return UsageError(message, f"give an address of this host, or all: tcp://0.0.0.0:{to.port}")
