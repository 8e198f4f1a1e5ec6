"""Whether a process ended because its interpreter does not have a module, as the end of its output shows."""

import re
from pathlib import Path
from typing import Final

__all__ = ["missing_module"]

_MISSING: Final = re.compile(rb"^ModuleNotFoundError: No module named '([\w.-]{1,100})'\s*\Z", re.MULTILINE)
_PYTHON: Final = re.compile(r"python[\d.]*")
_OURS: Final = ("gpusched", "msgspec", "zmq", "workloads")


def missing_module(output: bytes, program: str) -> str | None:
    """Return which module was missing, in which interpreter, and what to do; None if the process ended otherwise.

    `program` is the first word of the replica's command.
    """
    found = _MISSING.search(output)
    if found is None:
        return None
    module = found[1].decode().partition(".")[0]
    interpreter = program if _PYTHON.fullmatch(Path(program).name) else "the interpreter that ran"
    wanted = "gpusched" if module in _OURS else "it"
    return (
        f"no module named {found[1].decode()!r} in {interpreter}: install {wanted} there, "
        "or activate the environment that has it and launch again"
    )
