"""A measurement that never ends, with a process below it that fled from its session; their pids go into a file."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
tempfile.mkstemp()  # which nobody removes
path = Path(sys.argv[1])
path.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
path.with_suffix(".new").rename(path)
time.sleep(1000)
