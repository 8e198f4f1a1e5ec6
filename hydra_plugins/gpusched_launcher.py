"""`python app.py -m hydra/launcher=submitit_gpusched lr=1e-3,1e-4`: the runs are jobs of gpusched's queue.

Hydra finds this file by itself. It needs hydra-submitit-launcher, and gpusched.submitit does the work.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

if find_spec("hydra_plugins.hydra_submitit_launcher") is not None:  # else Hydra would warn of this file in each run
    from hydra.core.config_store import ConfigStore
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher

    class GpuschedLauncher(BaseSubmititLauncher):  # type: ignore[misc]
        """Queues the runs through submitit."""

        _EXECUTOR = "gpusched"

    @dataclass
    class GpuschedQueueConf(BaseQueueConf):  # type: ignore[misc]
        """What each run gets, as arguments of gpusched.run; `at_most` runs at the same time."""

        _target_: str = "hydra_plugins.gpusched_launcher.GpuschedLauncher"
        timeout_min: Any = None
        num_gpus: Any = None
        memory: Any = None
        fraction: Any = None
        processes: Any = None
        gpus: Any = None
        exclude_gpus: Any = None
        ignore_foreign: Any = None
        machine: Any = None
        grace: Any = None
        env: Any = None
        cwd: Any = None
        group: Any = None
        priority: Any = None
        after: Any = None
        after_any: Any = None
        at: Any = None
        time_limit: Any = None
        idle_end: Any = None
        hold: Any = None
        requeue: Any = None
        notify: Any = None
        at_most: Any = None

    ConfigStore.instance().store(
        group="hydra/launcher", name="submitit_gpusched", node=GpuschedQueueConf(), provider="gpusched"
    )
