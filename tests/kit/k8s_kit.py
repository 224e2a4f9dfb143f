"""The manifests of compose/k8s, taken apart."""

from collections.abc import Iterator
from typing import Any

import yaml
from monitoring_kit import COMPOSE

Manifest = dict[str, Any]
FOLDER = COMPOSE / "k8s"
WORKLOADS = ("Deployment", "StatefulSet")


def manifests() -> list[tuple[str, Manifest]]:
    """Each document of each file that `kubectl apply -f` takes, and of the example; its place and itself."""
    found = []
    for path in sorted([*FOLDER.glob("*.yaml"), *FOLDER.glob("*.example")]):
        for document in yaml.safe_load_all(path.read_text()):
            found.append((f"{path.name} {document['kind']} {document['metadata']['name']}", document))
    return found


def of_kind(*kinds: str) -> Iterator[Manifest]:
    """Those of these kinds."""
    yield from (document for _, document in manifests() if document["kind"] in kinds)


def named(kind: str, name: str) -> Manifest:
    """The one of this name."""
    return next(document for document in of_kind(kind) if document["metadata"]["name"] == name)


def pod(workload: Manifest) -> Manifest:
    """The template of its pods."""
    template: Manifest = workload["spec"]["template"]
    return template


def container(workload: Manifest) -> Manifest:
    """Its one container."""
    (only,) = pod(workload)["spec"]["containers"]
    found: Manifest = only
    return found


def selects(selector: dict[str, str], workload: Manifest) -> bool:
    """Whether a selector takes its pods."""
    return bool(selector.items() <= pod(workload)["metadata"]["labels"].items())
