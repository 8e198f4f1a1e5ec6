"""A real daemon that is killed when a job is on disk and the answer, Submitted, would go out."""

import os
import signal
import sys

from gpusched.control.messages import Answer, Submitted
from gpusched.daemon.main import Words, main
from gpusched.daemon.server import Asked, Server

honest = Server.answer


def dying(self: Server, asked: Asked, answer: Answer) -> None:
    if isinstance(answer, Submitted):
        os.kill(os.getpid(), signal.SIGKILL)
    honest(self, asked, answer)


Server.answer = dying  # type: ignore[method-assign]
sys.exit(main(Words(None)))
