"""The engines for clusters, and what each of them registers.

To add one: a folder beside `slurm` and `ray` with a module that holds its ClusterEngine as `ENGINE`, and a line with
that module in settings_keys.ENGINES. No module of an engine is imported before it is chosen, but for its registration,
where a command line lists its options; that imports nothing which takes time.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import msgspec

from gpusched.model.cluster_job import ClusterJob, Own
from gpusched.settings import ENGINES, LOCAL

__all__ = ["ClusterEngine", "EngineOption", "cluster_engine", "clusters", "engine_options"]


class EngineOption(msgspec.Struct, frozen=True, kw_only=True):
    """An option of `launch` that belongs to one engine."""

    help: str
    metavar: str
    elsewhere: str
    """Why another engine does not take it; `{engine}` is that one's name."""
    repeats: bool = False
    """Whether it may be given several times."""


def _as_it_is(own: Own, _: Mapping[str, str]) -> Own:
    return own


def _no_gpus(_: Own) -> int:
    return 0


def _fits(job: ClusterJob, _: str | None) -> ClusterJob:
    return job


def _nothing(*_: object) -> str:
    return ""


class ClusterEngine(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine registers. Its defaults are those of a cluster that takes every job and has no GPUs."""

    module: str
    """What this host runs for a job as long as the cluster has it, as `python -m MODULE`.

    It gets the ClusterJob as its settings, submits it, polls and cancels it (base.Engine), and exits as the job did.
    """
    options: Mapping[str, EngineOption] = {}
    """By their names: `site` is `--site` on the command line."""
    checked: Callable[[Own, Mapping[str, str]], Own] = _as_it_is
    """Return what was given of `options`, completed from the environment. Raises UsageError."""
    gpus: Callable[[Own], int] = _no_gpus
    """Return how many GPUs a node gives where no number was typed. Raises UsageError and HostFault."""
    preflight: Callable[[ClusterJob, str | None], ClusterJob] = _fits
    """Return the job as the cluster can have it, with the patience as it was typed, if it was.

    Raises HostFault where this host cannot submit jobs, UsageError for what the cluster does not allow.
    """
    require_now: Callable[[ClusterJob], object] = _nothing
    """Raise HostFault if the cluster cannot be reached; not called for a job that is to start later."""
    script: Callable[[ClusterJob, str], str] | None = None
    """Return a script that can be submitted by hand as a job of that name, if the cluster takes scripts."""
    needs: Callable[[ClusterJob], str] = _nothing
    """Return a line for people about what is asked of the cluster, where no script shows it."""
    handed: tuple[str, ...] = ("CUDA_VISIBLE_DEVICES",)
    """Variables on a node, the first that is set counts, with the devices that it hands over."""
    handed_hint: str = "ask who runs the cluster what sets CUDA_VISIBLE_DEVICES there"
    """What to do where none of them is set."""


def clusters() -> list[str]:
    """Return the engines for clusters."""
    return [name for name in ENGINES if name != LOCAL]


def cluster_engine(name: str) -> ClusterEngine:
    """Return what the engine `name`, one of `clusters`, has registered."""
    found: Any = import_module(ENGINES[name])
    engine: ClusterEngine = found.ENGINE
    return engine


def engine_options() -> dict[str, EngineOption]:
    """Return the options of all engines, by name."""
    return {name: option for engine in clusters() for name, option in cluster_engine(engine).options.items()}
