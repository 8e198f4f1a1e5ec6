"""Manifests as text: YAML with its notes as comments before it, or JSON without any."""

from typing import TYPE_CHECKING, Any

import msgspec

from gpusched.export.manifest import Manifests

if TYPE_CHECKING:
    import yaml

__all__ = ["as_json", "as_yaml"]


def as_yaml(manifests: Manifests) -> str:
    """Return all documents, one after the other; every line of a note is a comment."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """For people: nothing is an alias of something above, and a script has its lines."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (PyYAML's signature)
            return True

    Dumper.add_representer(str, _represent_text)
    comments = "".join(f"# {_printable(note)}\n" for note in manifests.notes)
    return comments + yaml.dump_all(
        manifests.documents, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True
    )


def as_json(manifests: Manifests) -> str:
    """Return the document; several are one of Kubernetes' kind List, which kubectl takes as well."""
    documents: tuple[object, ...] = manifests.documents
    whole = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    return msgspec.json.format(msgspec.json.encode(whole)).decode() + "\n"


def _printable(note: str) -> str:
    """Return the note in one line and in characters that YAML takes: it may hold a host's name from a saved file."""
    return "".join(character if character.isprintable() else "?" for character in note)


def _represent_text(dumper: "yaml.SafeDumper", text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)
