"""The names of users."""

import pwd
from functools import cache

__all__ = ["user_name"]


@cache
def user_name(uid: int) -> str:
    """Return a user's name, or the number where the host knows none, as in some containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
