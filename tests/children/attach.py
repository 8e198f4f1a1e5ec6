"""Starts the attached job in the directory it is given and ends as its command did, as `gpusched run` does.

With `hands-off` it closes its own streams once the command runs.
"""

import os
import pathlib
import signal
import sys
import time

import msgspec

from gpusched.execution.directory import JobDirectory
from gpusched.execution.start import prepare, spawn, this_process
from gpusched.model.status import JOB_TERMINAL, ReplicaState

signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGQUIT, lambda *_: None)
directory = JobDirectory(pathlib.Path(sys.argv[1]))
spec = msgspec.structs.replace(directory.read_spec(), launcher=this_process(), attached=True)
spawn(directory, prepare(directory, spec), os.environ, attached=True)
while (status := directory.read_status()) is None or status.state not in JOB_TERMINAL:
    if "hands-off" in sys.argv and status is not None and status.replicas[0].state is ReplicaState.RUNNING:
        os.closerange(0, 3)
    time.sleep(0.01)
ended = status.replicas[0].exit
assert ended is not None
sys.exit(128 + ended.signal if ended.signal else ended.code or 0)
