"""`gpusched web`: the status as a page in the browser."""

from typing import Annotated

from gpusched.cli.options import Option
from gpusched.errors import HostFault

__all__ = ["web"]

_MOST_PORT = 65_535


def web(
    port: Annotated[
        int | None,
        Option(
            "Where it listens, on loopback. [default: 8470, or the next that is free]",
            metavar="N",
            least=1,
            most=_MOST_PORT,
        ),
    ] = None,
    metrics_token: Annotated[
        str | None,
        Option(
            "A file with the secret by which Prometheus reads /metrics; it is made if it is not there.", metavar="FILE"
        ),
    ] = None,
    address_file: Annotated[
        str | None,
        Option(
            "Write the address to open into this file, for you alone, and print nothing: as a service.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Show GPUs and jobs as a page in the browser, try plans, stop jobs. Ctrl-C ends it; jobs go on.

    It prints an address to open. It is good for one login, and then it prints another one, for another browser. Only
    this host can open it; from elsewhere: ssh -L 8470:127.0.0.1:8470 HOST

    Example: gpusched web
    """
    try:
        from gpusched.web.serve import serve
    except ModuleNotFoundError as error:
        hint = "install what it needs: pip install 'gpusched-daemon[web]'"
        raise HostFault(
            f"the page needs {(error.name or 'another package').partition('.')[0]}, which is not installed", hint
        ) from None
    from gpusched.web.secret import kept_secret, write_address

    def show(address: str) -> None:
        if address_file is None:
            print(f"open: {address}", flush=True)
        else:
            write_address(address_file, address)

    serve(port, show, kept_secret(metrics_token))
