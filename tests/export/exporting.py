"""What the tests of exports share: a plan to export, the published schemas, and what Kubernetes makes of a manifest."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from gpusched.cli.workload_arguments import own_options
from gpusched.execution.plan_options import PlanOptions
from gpusched.execution.workload_options import configured_by
from gpusched.execution.workloads import load_workload
from gpusched.export import Exported
from gpusched.settings import load_settings

SCHEMAS = Path(__file__).parent / "schemas"
KINDS = {
    "Job": "io.k8s.api.batch.v1.Job",
    "Service": "io.k8s.api.core.v1.Service",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
}


def exported(
    workload: str = "snake", words: Sequence[str] = (), *, machine: str, image: str = "lab/snake:1", **wish: Any
) -> Exported:
    """What the command line would hand over; `wish` as in Wish."""
    given = own_options(workload, words, "gpusched export")
    loaded, options = configured_by(load_workload(workload), given)
    plan = PlanOptions(machine=machine, **wish).plan(loaded, load_settings({}))
    return Exported(plan, loaded, loaded.name, image, options, "XLA_PYTHON_CLIENT_MEM_FRACTION")


def complaints(document: Mapping[str, Any]) -> list[str]:
    """What the published schema of its kind has against a document."""
    return sorted(
        f"{error.json_path}: {error.message}" for error in _validator(document.get("kind")).iter_errors(document)
    )


def only(documents: Sequence[Mapping[str, Any]], kind: str) -> list[Any]:
    """Those documents of that kind, as JSON would give them back."""
    return [json.loads(json.dumps(document)) for document in documents if document["kind"] == kind]


def literal(text: str) -> str:
    """What Kubernetes and Compose make of a text in which `$` is escaped."""
    return text.replace("$$", "$")


@cache
def _validator(kind: str | None) -> Draft202012Validator:
    if kind is None:
        return Draft202012Validator(json.loads((SCHEMAS / "compose-spec.json").read_text()))
    schema = json.loads((SCHEMAS / "kubernetes-1.37.json").read_text())
    return Draft202012Validator({**schema, "$ref": f"#/$defs/{KINDS[kind]}"})
