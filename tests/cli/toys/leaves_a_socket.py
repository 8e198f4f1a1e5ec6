"""A learner that is killed while it holds its socket."""

import os
import signal
from pathlib import Path

path = Path(os.environ["GPUSCHED_ENDPOINT"].removeprefix("ipc://"))
path.parent.mkdir(mode=0o700, exist_ok=True)
path.touch()
path.with_name(f"{path.name}.lock").touch()
os.kill(os.getpid(), signal.SIGKILL)
