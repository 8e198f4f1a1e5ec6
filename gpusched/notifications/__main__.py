"""`python -m gpusched.notifications`: deliver the events that standard input has."""

from gpusched.interpreter import own_modules_first

own_modules_first()
from gpusched.notifications.deliver import main  # noqa: E402 (after the line above)

main()
