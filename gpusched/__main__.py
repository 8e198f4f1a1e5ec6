"""`python -m gpusched` is `gpusched`."""

import sys

from gpusched.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
