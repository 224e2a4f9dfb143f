"""Kubernetes without a node: etcd, the API server and its controllers as processes; kubectl asks them."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from proxy_kit import until

from weir.jars.folders import ROOT
from weir.stack.kafka import HOST, free_port
from weir.stack.process import Child

TOOLS: Final = ROOT / ".weir" / "tools" / "kube"
_START_S: Final = 120.0
_KUBECTL_S: Final = 60.0
_TOKEN: Final = "token-of-the-test"
_OF_NO_MEANING: Final = "Warning: spec.SessionAffinity is ignored for headless services\n"
"""Kubernetes 1.34.1 says so of every headless Service, which has none (its issue 134040)."""


class Kubernetes:
    """A context manager; no kubelet, so pods stay Pending until a test says otherwise, and no scheduler.

    Args:
        folder: for data, keys and logs.
    """

    def __init__(self, folder: Path) -> None:
        assert TOOLS.exists(), f"no {TOOLS}; `make kube` builds it, in a quarter of an hour"
        self._config, key, tokens = folder / "config.json", folder / "accounts.key", folder / "tokens.csv"
        key.write_bytes(
            rsa.generate_private_key(65537, 2048).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        tokens.write_text(f'{_TOKEN},tester,1,"system:masters"\n')
        etcd, peers, api = (free_port() for _ in range(3))
        self._config.write_text(json.dumps(_kubeconfig(f"https://{HOST}:{api}")))
        store, between = f"http://{HOST}:{etcd}", f"http://{HOST}:{peers}"
        server = {
            "etcd-servers": store, "bind-address": HOST, "secure-port": api,
            "cert-dir": folder / "certificates", "endpoint-reconciler-type": "none",
            "service-cluster-ip-range": "10.0.0.0/24", "service-account-issuer": "https://weir.test",
            "service-account-key-file": key, "service-account-signing-key-file": key,
            "token-auth-file": tokens, "authorization-mode": "RBAC",
        }  # fmt: skip
        manager = {
            "kubeconfig": self._config,
            "service-account-private-key-file": key,
            "leader-elect": "false",
            "secure-port": 0,
        }
        data = {
            "data-dir": folder / "etcd", "listen-client-urls": store, "advertise-client-urls": store,
            "listen-peer-urls": between, "initial-advertise-peer-urls": between,
            "initial-cluster": f"default={between}", "unsafe-no-fsync": "true",
        }  # fmt: skip
        self._parts = [
            Child(
                name, [str(TOOLS / name), *(f"--{key}={value}" for key, value in options.items())],
                log=folder / f"{name}.log",
            )
            for name, options in {
                "etcd": data, "kube-apiserver": server, "kube-controller-manager": manager
            }.items()
        ]  # fmt: skip

    def __enter__(self) -> Self:
        for part in self._parts:
            part.start()
        try:
            until(self._ready, _START_S, "an API server that is ready, and accounts for pods")
        except AssertionError:
            said = {part.name: part.last_lines() for part in self._parts}
            self.__exit__()
            raise AssertionError(said) from None
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._parts):
            part.kill()

    def _ready(self) -> bool:
        asked = (("get", "--raw=/readyz"), ("get", "serviceaccount", "default"))
        return not any(self.run(*words).returncode for words in asked)

    def run(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """kubectl, however it ends; `given` as its input."""
        command = [str(TOOLS / "kubectl"), f"--kubeconfig={self._config}", *words]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_KUBECTL_S, check=False
        )

    def tell(self, *words: str) -> str:
        """What kubectl said; it found nothing to warn of."""
        done = self.run(*words)
        said = done.stderr.replace(_OF_NO_MEANING, "")
        assert not (done.returncode or said), said
        return done.stdout

    def get(self, kind: str, *words: str) -> list[dict[str, Any]]:
        """All of a kind in Weir's namespace."""
        found: list[dict[str, Any]] = json.loads(
            self.tell("-n", "weir", "get", kind, "--output=json", *words)
        )["items"]
        return found

    def evict(self, pod: str) -> subprocess.CompletedProcess[str]:
        """As `kubectl drain` does, however it ends."""
        path = f"/api/v1/namespaces/weir/pods/{pod}/eviction"
        asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        return self.run("create", f"--raw={path}", "--filename=-", given=json.dumps(asked))

    def is_up(self, pods: Sequence[str]) -> None:
        """Say of pods what a kubelet would whose probes are content."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        for pod in pods:
            self.tell(
                *("-n", "weir", "patch", "pod", pod, "--subresource=status", "--type=merge"),
                f"--patch={json.dumps(status)}",
            )


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "test", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
