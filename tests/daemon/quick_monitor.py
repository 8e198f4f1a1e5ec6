"""A real daemon that polls the devices more often: every so many seconds, its argument."""

import sys

from gpusched.daemon import monitor
from gpusched.daemon.main import main

monitor._BUSY_S = monitor._IDLE_S = float(sys.argv[1])  # type: ignore[misc]
sys.exit(main())
