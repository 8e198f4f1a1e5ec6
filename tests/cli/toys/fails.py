"""A replica that cannot do its work."""

import sys

print("the data set is missing", flush=True)
sys.exit(3)
