"""Ctrl-C that cannot get lost: Python drops a KeyboardInterrupt in callbacks, such as one of an import under way.

https://docs.python.org/3/library/signal.html, "Note on Signal Handlers and Exceptions".
"""

import signal
from typing import NoReturn

__all__ = ["forget_interrupt", "keep_interrupts", "note_interrupt", "raise_if_interrupted"]

_interrupted = False


def keep_interrupts() -> None:
    """Remember from now on that Ctrl-C was typed; where SIGINT is ignored, as in a background job, it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was typed and not handled yet: a loop that waits calls this in each turn."""
    if _interrupted:
        raise KeyboardInterrupt


def note_interrupt() -> None:
    """Remember a signal that is to end a wait as Ctrl-C does; its handler calls this and raises KeyboardInterrupt."""
    global _interrupted  # noqa: PLW0603 (a signal is the process's own)
    _interrupted = True


def forget_interrupt() -> None:
    """Note that it was handled: what is waited for from now on is waited for."""
    global _interrupted  # noqa: PLW0603
    _interrupted = False


def _interrupt(*_: object) -> NoReturn:
    note_interrupt()
    raise KeyboardInterrupt
