"""A plan as manifests for what starts containers: pure functions of a plan, a workload and what a person named."""

from gpusched.export.compose import compose
from gpusched.export.kubernetes import ShareResource, kubernetes
from gpusched.export.manifest import NO_IMAGE, Exported, Manifests, manifest_name

__all__ = ["NO_IMAGE", "Exported", "Manifests", "ShareResource", "compose", "kubernetes", "manifest_name"]
