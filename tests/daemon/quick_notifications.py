"""A real daemon with other pauses between tries, and another limit of one delivery: its arguments, in seconds."""

import sys

from gpusched.daemon import deliveries
from gpusched.daemon.main import main
from gpusched.storage import event_table

pause_s, limit_s = map(float, sys.argv[1:])
event_table.PAUSES_S = (pause_s,) * 3  # type: ignore[misc]
deliveries.LIMIT_S = limit_s  # type: ignore[misc]
sys.exit(main())
