"""compose/k8s before a real API server: what it admits, what controllers make of it, what changes replace."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_kit import BASE, FOLDER, OVERLAYS, clients_are_told_what_is_there, named
from kube_kit import Kubernetes
from proxy_kit import until
from tls_kit import Authority

from enforcer.core.settings import ProxySettings
from streaming.policy.settings import read_settings

pytestmark = pytest.mark.soak
SCALED = "scaled"
PARTS = {"admin": 1, "collect": 1, "job": 1, "proxy": 2}
STRICT = ("--server-side", "--validate=strict")
LIMIT_S = 60.0
PROXIES = "--selector=app.kubernetes.io/component=proxy"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """With Weir's namespace."""
    with Kubernetes(tmp_path_factory.mktemp("kube")) as running:
        running.tell("apply", f"--filename={BASE / '00-namespace.yaml'}", "--namespace=weir", *STRICT)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy, with an overlay that has the autoscaler."""
    copied = tmp_path / "k8s"
    shutil.copytree(FOLDER, copied)
    _kustomize(copied / SCALED, components=["../autoscaler"])
    return copied


def _kustomize(folder: Path, **further: Any) -> None:
    folder.mkdir(exist_ok=True)
    text = {"namespace": "weir", "resources": ["../base"], **further}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))


@pytest.mark.parametrize("name", [BASE.name, *OVERLAYS, SCALED])
def test_all_of_it_is_admitted(kube: Kubernetes, folder: Path, name: str) -> None:
    """Without a warning, no unknown field and no deprecated one; clients are told what is there."""
    kube.tell("apply", f"--kustomize={folder / name}", *STRICT, "--dry-run=server")
    documents = list(yaml.safe_load_all(kube.tell("kustomize", str(folder / name))))
    (settings,) = (one["data"]["weir.yaml"] for one in documents if one["kind"] == "ConfigMap")
    file, pair = folder / "weir.yaml", Authority(folder).server()
    for mounted, here in zip(("tls.crt", "tls.key"), pair, strict=True):
        settings = settings.replace(f"/run/secrets/tls/{mounted}", here)
    file.write_text(settings)
    clients_are_told_what_is_there(read_settings(ProxySettings, "proxy", str(file)), documents)


def test_its_life(kube: Kubernetes, folder: Path) -> None:
    """Its pods are made, evicted one at a time, replaced without one less, and anew where settings differ."""
    kube.tell("apply", f"--kustomize={folder / 'base'}", *STRICT)
    until(lambda: _parts(kube) == PARTS, LIMIT_S, "pods of all parts")
    (claim,) = kube.get("persistentvolumeclaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    _is_guarded(kube)
    _is_evicted_one_at_a_time(kube)
    _is_replaced(kube, folder)
    _goes_by_connections(kube, folder)


def _is_guarded(kube: Kubernetes) -> None:
    """A pod that may be root is refused."""
    done = kube.run("-n", "weir", "run", "other", "--image=other")
    assert done.returncode and "violates PodSecurity" in done.stderr


def _is_evicted_one_at_a_time(kube: Kubernetes) -> None:
    first, second = _names(kube)
    kube.is_up([first, second])
    until(lambda: _allowed(kube) == 1, LIMIT_S, "a budget that counts two proxies")
    assert not kube.evict(first).returncode
    assert "disruption budget" in kube.evict(second).stderr
    until(lambda: len(_names(kube) - {first}) == 2, LIMIT_S, "another proxy in its place")
    kube.is_up(list(_names(kube)))
    until(lambda: _allowed(kube) == 1, LIMIT_S, "a budget that counts them again")


def _is_replaced(kube: Kubernetes, folder: Path) -> None:
    """More proxies leave all pods alone; other settings, by themselves, replace them, the new one first."""
    before = _hashes(kube)
    _apply(kube, folder, replicas=[{"name": "weir-proxy", "count": 3}])
    until(lambda: len(_names(kube)) == 3, LIMIT_S, "a third proxy")
    assert _hashes(kube) == before
    old = _names(kube)
    kube.is_up(list(old))
    (folder / "own" / "weir.yaml").write_text((BASE / "weir.yaml").read_text() + "# other\n")
    generated = {"name": "weir-settings", "behavior": "replace", "files": ["weir.yaml"]}
    _apply(kube, folder, replicas=[{"name": "weir-proxy", "count": 3}], configMapGenerator=[generated])
    until(lambda: len(_names(kube)) == 4, LIMIT_S, "a fourth before one goes")
    assert old < _names(kube)
    assert all(one != other for one, other in zip(before, _hashes(kube), strict=True))
    until(lambda: _replaced(kube, old), LIMIT_S * 3, "all proxies anew")


def _goes_by_connections(kube: Kubernetes, folder: Path) -> None:
    """The autoscaler has its least number, and an apply does not set back what it has made of it."""
    kube.tell("apply", f"--kustomize={folder / SCALED}", *STRICT)
    until(lambda: _wanted(kube) == 2, LIMIT_S, "the autoscaler's least number")
    kube.tell("-n", "weir", "scale", "deployment/weir-proxy", "--replicas=5")
    kube.tell("apply", f"--kustomize={folder / SCALED}", *STRICT)
    assert _wanted(kube) == 5


def _wanted(kube: Kubernetes) -> int:
    return int(named("Deployment", "weir-proxy", kube.get("deployment"))["spec"]["replicas"])


def _apply(kube: Kubernetes, folder: Path, **further: Any) -> None:
    _kustomize(folder / "own", **further)
    kube.tell("apply", f"--kustomize={folder / 'own'}", *STRICT)


def _parts(kube: Kubernetes) -> dict[str, int]:
    """How many pods each part has; without a node they wait."""
    found: dict[str, int] = {}
    for pod in kube.get("pod"):
        assert pod["status"]["phase"] == "Pending"
        part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        found[part] = found.get(part, 0) + 1
    return found


def _names(kube: Kubernetes) -> set[str]:
    return {pod["metadata"]["name"] for pod in kube.get("pod", PROXIES)}


def _allowed(kube: Kubernetes) -> int:
    (budget,) = kube.get("poddisruptionbudget")
    return int(budget.get("status", {}).get("disruptionsAllowed", 0))


def _hashes(kube: Kubernetes) -> list[str]:
    """What each workload's pods are made from."""
    return [json.dumps(one["spec"]["template"]) for one in kube.get("deployment,statefulset")]


def _replaced(kube: Kubernetes, old: set[str]) -> bool:
    """Whether none of the old proxies is left; new ones are well at once."""
    names = _names(kube)
    kube.is_up(list(names - old))
    return len(names) == 3 and not names & old
