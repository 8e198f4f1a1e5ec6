"""Starts the job in the directory it is given, which must not outlive it; with a second argument from a cgroup."""

import os
import pathlib
import sys
import time

import msgspec

from gpusched.execution.directory import JobDirectory
from gpusched.execution.start import await_supervisor, prepare, spawn, this_process

if len(sys.argv) > 2:
    pathlib.Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
directory = JobDirectory(pathlib.Path(sys.argv[1]))
spec = msgspec.structs.replace(directory.read_spec(), launcher=this_process())
await_supervisor(directory, spawn(directory, prepare(directory, spec), os.environ), spec)
while True:
    time.sleep(600)
