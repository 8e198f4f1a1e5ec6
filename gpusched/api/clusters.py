"""Clusters: the engines that there are, and what would be submitted to one. launch and submit take `engine=`, too."""

import os
from collections.abc import Mapping
from typing import Any, Self, Unpack

import msgspec

from gpusched.api.arguments import Begins, LaunchArguments, cluster_options, with_arguments
from gpusched.api.plan_arguments import plan_options, require_known
from gpusched.api.workloads import Options, WorkloadName, chosen_workload
from gpusched.engines.cluster.options import engine_of
from gpusched.engines.registry import EngineOption, cluster_engine, clusters
from gpusched.errors import UsageError
from gpusched.execution.workload_options import Configured
from gpusched.model.cluster_job import ClusterJob
from gpusched.settings import LOCAL, Settings, load_settings

__all__ = ["ClusterPlan", "engines", "plan_on_cluster", "planned"]


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A workload spread over the nodes of a cluster. Nothing has been submitted."""

    job: ClusterJob
    """Its `nodes` have how many replicas of each role they run, and the rank of the first of them."""
    script: str
    """The batch script that would be submitted; "" for an engine that has none."""
    needs: str
    """What is asked of the cluster, where no script shows it."""
    warnings: tuple[str, ...]
    """What a person should know before it is submitted."""

    @classmethod
    def of(cls, job: ClusterJob, name: str) -> Self:
        """Return what would be submitted for `job`, under that `name`."""
        from gpusched.engines.cluster.prepare import cluster_warnings

        engine = cluster_engine(job.engine)
        script = "" if engine.script is None else engine.script(job, name)
        return cls(job=job, script=script, needs=engine.needs(job), warnings=cluster_warnings(job))

    def json(self) -> str:
        """Return what would be submitted as JSON."""
        report = {"engine": self.job.engine, "nodes": msgspec.to_builtins(self.job.nodes), "script": self.script}
        return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"

    def __repr__(self) -> str:
        from gpusched.render.cluster import layout_text

        return layout_text(self.job)


def engines() -> dict[str, Mapping[str, EngineOption]]:
    """Return what can run a workload's processes, with the options of each, which `engine_options` takes."""
    return {LOCAL: {}} | {name: cluster_engine(name).options for name in clusters()}


@with_arguments(LaunchArguments)
def plan_on_cluster(
    workload: WorkloadName,
    *,
    options: Options | None = None,
    name: str | None = None,
    **given: Unpack[LaunchArguments],
) -> ClusterPlan:
    """Return what would run on which node of a cluster, and what would be submitted, as a job of that `name`.

    Raises UsageError, too if no engine for clusters is meant, NeverFits, and HostFault where only the cluster knows how
    many GPUs its nodes have, and does not answer.
    """
    require_known(given, LaunchArguments)
    settings, chosen = load_settings(os.environ), chosen_workload(workload, options)
    engine = engine_of(cluster_options(given), chosen.workload, settings)
    if engine == LOCAL:
        raise UsageError("the engine local is this host, and no cluster", f"give one of: {', '.join(clusters())}")
    return planned(engine, chosen, given, settings, name=name)


def planned(
    engine: str,
    chosen: Configured,
    given: Mapping[str, Any],
    settings: Settings,
    *,
    begins: Begins = "never",
    name: str | None = None,
) -> ClusterPlan:
    """Return what plan_on_cluster does, of a workload under its options. Raises HostFault for what `begins` needs."""
    from gpusched.engines.cluster.prepare import cluster_job, preflight, preview

    cluster = cluster_options(given)
    job = cluster_job(engine, chosen, plan_options(given), cluster, settings)
    job = preview(job, cluster) if begins == "never" else preflight(job, cluster, now=begins == "now")
    return ClusterPlan.of(job, name or job.workload.name)
