"""`gpusched web`: the status as a page in the browser."""

from typing import TYPE_CHECKING, Any, Final

from gpusched.cli.options import Option, Options, with_options
from gpusched.errors import HostFault, UsageError

if TYPE_CHECKING:
    from gpusched.web.listening import Listening

__all__ = ["web"]

_MOST_PORT: Final = 65_535

_OPTIONS: Final[Options] = {
    "port": Option(
        "Where it listens, on loopback. [default: 8470, or the next that is free]",
        metavar="N",
        least=1,
        most=_MOST_PORT,
        kind=int | None,
    ),
    "host": Option(
        "Another host on the same page, through ssh; may be given several times. It has gpusched, too; with ,read-only "
        "at the end nothing there can be stopped or changed.",
        metavar="NAME=ssh://[USER@]HOST[:PORT][/PATH/TO/GPUSCHED]",
        kind=list[str] | None,
    ),
    "machine": Option(
        "Another machine than this host, whose devices are simulated, or a saved status: as status --machine.",
        metavar="NAME|4x16GiB|FILE",
    ),
    "address": Option(
        "Listen for other hosts, with TLS: the address that browsers open, such as https://lab:8470.", metavar="URL"
    ),
    "certificate": Option("With --address: its certificate, in PEM, with those that it depends on.", metavar="FILE"),
    "key": Option("With --address: the key of the certificate.", metavar="FILE"),
    "behind_proxy": Option(
        "The address of a proxy on this host, which speaks TLS and passes requests on to the port here.", metavar="URL"
    ),
    "metrics_token": Option(
        "A file with the secret by which Prometheus reads /metrics; it is made if it is not there.", metavar="FILE"
    ),
    "address_file": Option(
        "Write the address to open into this file, for you alone, and print nothing: as a service.", metavar="FILE"
    ),
    "socket": Option(
        "Listen at this socket, without a login, until the input ends or nothing is typed for a minute: what --host of "
        "another host runs here.",
        metavar="PATH",
    ),
}


@with_options(_OPTIONS)
def web(
    *,
    host: list[str] | None,
    machine: str | None,
    metrics_token: str | None,
    address_file: str | None,
    socket: str | None,
    **given: Any,
) -> None:
    """Show GPUs and jobs as a page in the browser, try plans, stop jobs. Ctrl-C ends it; jobs go on.

    It prints an address to open. It is good for one login, and then it prints another one, for another browser. Only
    this host can open it, unless it has --address or --behind-proxy; else from elsewhere: ssh -L 8470:127.0.0.1:8470
    HOST

    Example: gpusched web --host lab2=ssh://lab2
    """
    try:
        from gpusched.web.serve import serve, serve_until_input_ends
    except ModuleNotFoundError as error:
        hint = "install what it needs, in a clone of gpusched: pip install '.[web]'"
        raise HostFault(
            f"the page needs {(error.name or 'another package').partition('.')[0]}, which is not installed", hint
        ) from None
    if socket is not None:
        from gpusched.web.listening import READY, at_socket

        serve_until_input_ends(at_socket(socket), lambda: print(READY, flush=True))
        return
    from gpusched.web.secret import kept_secret, write_address

    def show(address: str) -> None:
        if address_file is None:
            print(f"open: {address}", flush=True)
        else:
            write_address(address_file, address)

    remotes = []
    if host:
        from gpusched.web.remote import Remote
        from gpusched.web.tunnel import targets_of

        remotes = [Remote(target) for target in targets_of(host)]
    serve(_listening(**given), show, kept_secret(metrics_token), remotes, machine)


def _listening(
    port: int | None, address: str | None, certificate: str | None, key: str | None, behind_proxy: str | None
) -> "Listening":
    from gpusched.web.listening import behind_proxy as on_loopback_for_proxy
    from gpusched.web.listening import here, with_tls

    if address is not None and certificate is not None and key is not None and behind_proxy is None:
        return with_tls(address, port, certificate, key)
    if (address, certificate, key) != (None, None, None):
        raise UsageError(
            "--address, --certificate and --key belong together, and not with --behind-proxy",
            "gpusched web --address https://lab:8470 --certificate lab.pem --key lab.key",
        )
    return here(port) if behind_proxy is None else on_loopback_for_proxy(behind_proxy, port)
