"""Run by every interpreter at its start (docs.python.org/3/library/site.html), because this directory is on PYTHONPATH.

It installs the import hook, takes its directory off sys.path, so that the script finds the path that it would have
without gpusched, and then gives way to the sitecustomize that Python would otherwise have run (a distribution's, a
coverage tool's). Whatever fails in here is printed once and is never the end of the script.

`python -I`, `-E` and `-S` do not run it: the first two ignore PYTHONPATH, the last skips site. Such a script
calls gpusched.frameworks.limit_memory() itself.
"""

import os
import sys

try:
    import gpusched_import_hook  # type: ignore[import-not-found]  # found in this directory, as a top-level module

    gpusched_import_hook.install()
except Exception as error:  # noqa: BLE001 (a script must start whatever is wrong with the hook)
    if sys.stderr is not None:  # print(file=None) would write to stdout
        print(f"gpusched: the import hook cannot apply a memory limit: {error!r}", file=sys.stderr)

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib would take longer than all the rest)
sys.path[:] = [entry for entry in sys.path if entry != _here]
_this = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 (the next one: its errors are for Python to print)
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    if _this is not None:
        sys.modules["sitecustomize"] = _this
