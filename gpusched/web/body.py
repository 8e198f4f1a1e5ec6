"""What a request carries, up to a limit."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["MOST_BODY", "body_of"]

MOST_BODY: Final = 4096


async def body_of(request: Request) -> bytes:
    """Return the body of a request. Raises HTTPException (413) for more than 4 KiB."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY:
            raise HTTPException(413, "That is too long.")
    return body
