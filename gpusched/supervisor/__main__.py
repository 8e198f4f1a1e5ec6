"""`python -m gpusched.supervisor [--attached] [--environment] JOBDIR NONCE`: run one attempt of a job (guard.py)."""

import sys

from gpusched.interpreter import own_modules_first

own_modules_first()
from gpusched.supervisor.guard import guard  # noqa: E402 (after the line above)

options = {word for word in sys.argv[1:] if word.startswith("--")}
operands = [word for word in sys.argv[1:] if word not in options]
if len(operands) != 2 or not options <= {"--attached", "--environment"}:  # noqa: PLR2004
    print("usage: python -m gpusched.supervisor [--attached] [--environment] JOBDIR NONCE", file=sys.stderr)
    sys.exit(2)
sys.exit(guard(*operands, attached="--attached" in options, environment="--environment" in options))
