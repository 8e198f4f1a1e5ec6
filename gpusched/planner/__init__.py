"""Where each replica goes and what it gets: pure functions of a request, an inventory, leases and rules.

docs/reference.md has the rules. Nothing here reads a host, a clock or an environment, so that a saved inventory
reproduces any decision.
"""

from gpusched.planner.device_selection import named_devices, number_of_devices, select_devices
from gpusched.planner.expand import document, filled_in, numbered_from, replica_specs
from gpusched.planner.plan import Rules, plan
from gpusched.planner.request import counted_role, request_for
from gpusched.planner.visible_devices import restriction

__all__ = [
    "Rules",
    "counted_role",
    "document",
    "filled_in",
    "named_devices",
    "number_of_devices",
    "numbered_from",
    "plan",
    "replica_specs",
    "request_for",
    "restriction",
    "select_devices",
]
