"""The manifests of compose/k8s, taken apart."""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from monitoring_kit import COMPOSE

from enforcer.core.settings import ProxySettings

Manifest = dict[str, Any]
FOLDER = COMPOSE / "k8s"
BASE = FOLDER / "base"
OVERLAYS = ("example", "sni")
AUTOSCALER = FOLDER / "autoscaler" / "hpa.yaml"
WORKLOADS = ("Deployment", "StatefulSet")


def kustomization(name: str) -> Manifest:
    """That of one folder."""
    found: Manifest = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text())
    return found


def manifests() -> list[tuple[str, Manifest]]:
    """Each document of the base's files, of the example and the autoscaler; its place and itself."""
    names = [BASE / name for name in kustomization("base")["resources"]]
    found = []
    for path in [*names, *BASE.glob("*.example"), AUTOSCALER]:
        for document in yaml.safe_load_all(path.read_text()):
            found.append((f"{path.name} {document['kind']} {document['metadata']['name']}", document))
    return found


def of_kind(*kinds: str, among: Sequence[Manifest] | None = None) -> Iterator[Manifest]:
    """Those of these kinds, of the base where no others are given."""
    documents = [document for _, document in manifests()] if among is None else among
    yield from (document for document in documents if document["kind"] in kinds)


def named(kind: str, name: str, among: Sequence[Manifest] | None = None) -> Manifest:
    """The one of this name."""
    return next(document for document in of_kind(kind, among=among) if document["metadata"]["name"] == name)


def pod(workload: Manifest) -> Manifest:
    """The template of its pods."""
    template: Manifest = workload["spec"]["template"]
    return template


def container(workload: Manifest) -> Manifest:
    """Its one container."""
    (only,) = pod(workload)["spec"]["containers"]
    found: Manifest = only
    return found


def ports(workload: Manifest) -> dict[str, int]:
    """Those that have names."""
    return {one["name"]: one["containerPort"] for one in container(workload)["ports"]}


def selects(selector: dict[str, str], workload: Manifest) -> bool:
    """Whether a selector takes its pods."""
    return bool(selector.items() <= pod(workload)["metadata"]["labels"].items())


def clients_are_told_what_is_there(settings: ProxySettings, among: Sequence[Manifest] | None = None) -> None:
    """Check that the Service and who is let in agree with the proxy's settings, and its probes too.

    A port for each broker, without a gap from where the settings begin; or one port, and TLS with names.
    """
    proxy = named("Deployment", "weir-proxy", among)
    bootstrap, *brokers = named("Service", "weir-proxy", among)["spec"]["ports"]
    first = ports(proxy)["bootstrap"]
    assert bootstrap == {"name": "bootstrap", "port": first, "targetPort": "bootstrap"}
    (rule,) = named("NetworkPolicy", "weir-proxy-clients", among)["spec"]["ingress"]
    expected = [{"protocol": "TCP", "port": first}]
    if brokers:
        base = settings.broker_port_base
        expected.append({"protocol": "TCP", "port": base, "endPort": base + len(brokers) - 1})
    assert rule["ports"] == expected
    for number, port in enumerate(brokers):
        port_number = settings.broker_port_base + number
        assert port == {"name": f"broker-{number}", "port": port_number, "targetPort": port_number}
    tls, probe = settings.tls, container(proxy)["livenessProbe"]["httpGet"]
    assert bool(brokers) != bool(tls and tls.sni)
    assert (probe.get("scheme") == "HTTPS") == bool(tls)
    # Each part reads all settings, and refuses those whose files are not there.
    for workload in of_kind(*WORKLOADS, among=among):
        mounts = [mount["mountPath"] for mount in container(workload)["volumeMounts"]]
        assert ("/run/secrets/tls" in mounts) == bool(tls)
