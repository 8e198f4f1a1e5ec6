"""A real daemon that is killed at a moment that matters to whoever submits a job.

mortal_daemon.py saved: a job is on disk, and the answer, Submitted, would go out. alone: the same, and no other daemon
can be started. asked: it is asked for jobs, the first time.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from gpusched.control.messages import Answer, ListJobs, Submitted
from gpusched.daemon.main import main
from gpusched.daemon.server import Asked, Server

moment = sys.argv[1]
honest, receive = Server.answer, Server.receive


def dying_with_the_answer(self: Server, asked: Asked, answer: Answer) -> None:
    if isinstance(answer, Submitted) and moment in ("saved", "alone"):
        if moment == "alone":
            Path(os.environ["GPUSCHED_STATE_DIR"], "daemon.log").mkdir()
        os.kill(os.getpid(), signal.SIGKILL)
    honest(self, asked, answer)


def dying_with_the_question(self: Server, most: int, seconds: float) -> Iterator[Asked]:
    for asked in receive(self, most, seconds):
        if isinstance(asked.request, ListJobs) and moment == "asked":
            os.kill(os.getpid(), signal.SIGKILL)
        yield asked


Server.answer = dying_with_the_answer  # type: ignore[method-assign]
Server.receive = dying_with_the_question  # type: ignore[method-assign]
sys.exit(main())
