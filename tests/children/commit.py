"""Commits a lease of so many MiB in the lease directory it is given, for the job in a run directory, and stays."""

import pathlib
import sys
import time

from gpusched.leases.directory import LeaseDirectory
from gpusched.model.lease import Lease

directory, run_dir, share = LeaseDirectory(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), int(sys.argv[3])
lease = Lease(device_uuid="GPU-a", share_mib=share, job=run_dir.name, replica="actor.0")
with directory.locked():
    hold = directory.commit(run_dir.name, [lease], run_dir)
print("committed", flush=True)
time.sleep(600)
