"""What a person typed about a cluster, and the engine that it means."""

from collections.abc import Mapping
from typing import NamedTuple

from gpusched.engines.registry import clusters
from gpusched.errors import UsageError
from gpusched.model.workload import Workload
from gpusched.settings import ENGINES, LOCAL, Settings

__all__ = ["ClusterOptions", "engine_of"]


class ClusterOptions(NamedTuple):
    """What a person typed about a cluster, as it was typed. `own`: the options that engines have registered."""

    engine: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    device_memory: str | None = None
    own: Mapping[str, tuple[str, ...]] = {}
    patience: str | None = None

    def given(self) -> list[str]:
        """Return the options that were used, but for --engine."""
        names: list[str] = []
        for field, value in self._asdict().items():
            if field != "engine" and value != self._field_defaults[field]:
                names += value if field == "own" else [field]
        return [f"--{name.replace('_', '-')}" for name in names]


def engine_of(cluster: ClusterOptions, workload: Workload, settings: Settings) -> str:
    """Return the engine: as typed, else that of the workload's file, else of the configuration. Raises UsageError."""
    name = cluster.engine or workload.engine or settings.engine
    if name not in ENGINES:
        raise UsageError(f"--engine: there is no engine {name!r}", f"there is: {', '.join(ENGINES)}")
    if name == LOCAL and cluster.given():
        hint = f"add --engine {' or '.join(clusters())}, or leave it out"
        raise UsageError(f"{' and '.join(cluster.given())} belongs to a cluster", hint)
    return name
