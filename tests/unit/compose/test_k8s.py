"""The manifests of compose/k8s: valid to the letter, of one mind with settings, commands and each other."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from k8s_kit import (
    BASE,
    FOLDER,
    OVERLAYS,
    WORKLOADS,
    Manifest,
    clients_are_told_what_is_there,
    container,
    kustomization,
    manifests,
    named,
    of_kind,
    pod,
    ports,
    selects,
)
from monitoring_kit import COMPOSE, ROOT
from tls_kit import Authority

from enforcer.core.settings import ProxySettings
from streaming.job.spark.settings import JobSettings
from streaming.policy.settings import read_settings
from weir.cli import build_parser
from weir.settings_file import SECTIONS

VERSIONS = ("1.29", kubernetes_validate.latest_version())
"""The oldest that has all that is used, ReadWriteOncePod among it, and the newest whose schemas are there."""
PARTS = list(of_kind(*WORKLOADS))
NAMES = [workload["metadata"]["name"] for workload in PARTS]
SETTINGS = str(BASE / "weir.yaml")
FLUSHED_S = 5
"""What a proxy may still have to tell Kafka after its clients are gone, and some."""
each_part = pytest.mark.parametrize("workload", PARTS, ids=NAMES)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_is_valid(version: str) -> None:
    """By the published schemas, no unknown field among them."""
    for place, document in manifests():
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            pytest.fail(f"{place}: {error.message}")


def test_an_unknown_field_would_be_seen() -> None:
    """The check itself."""
    proxy = named("Deployment", "weir-proxy")
    proxy["spec"]["template"]["spec"]["gracePeriod"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(proxy, VERSIONS[-1], strict=True)


def test_all_stand_in_one_namespace() -> None:
    """Its own, which admits restricted pods only."""
    (space,) = of_kind("Namespace")
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name in (BASE.name, *OVERLAYS):
        assert kustomization(name)["namespace"] == space["metadata"]["name"]


@each_part
def test_commands_are_those_of_weir(workload: Manifest, capsys: pytest.CaptureFixture[str]) -> None:
    """Our own parser takes them; files that they name are mounted."""
    args = container(workload)["args"]
    parsed = build_parser(args[0]).parse_args(args)
    assert callable(parsed.run), capsys.readouterr().err
    mounts = {mount["mountPath"]: mount["name"] for mount in container(workload)["volumeMounts"]}
    assert set(mounts.values()) <= volumes(workload)
    assert parsed.settings == "/etc/weir/weir.yaml" and mounts["/etc/weir"] == "settings"
    assert str(parsed.ready_file.parent) in mounts
    host, port = parsed.metrics
    assert host == "0.0.0.0" and port == ports(workload)["metrics"]


def test_two_collectors_do_not_take_turns() -> None:
    """Each is started again whenever it ends."""
    args = container(named("Deployment", "weir-collect"))["args"]
    assert build_parser("collect").parse_args(args).stand_by


def volumes(workload: Manifest) -> set[str]:
    """Names of all volumes of its pods."""
    claims = workload["spec"].get("volumeClaimTemplates", [])
    return {one["name"] for one in pod(workload)["spec"]["volumes"]} | {
        one["metadata"]["name"] for one in claims
    }


@each_part
def test_probes_ask_what_the_part_writes(workload: Manifest) -> None:
    """`weir healthy` with its ready file, in more time than that takes; alive is who answers at all."""
    args = container(workload)["args"]
    (ready,) = [word.partition("=")[2] for word in args if word.startswith("--ready-file=")]
    probe = container(workload)["readinessProbe"]
    assert probe["exec"]["command"] == ["weir", "healthy", ready]
    parsed = build_parser("healthy").parse_args(probe["exec"]["command"][1:])
    assert parsed.limit < probe["timeoutSeconds"]
    # Nobody is killed for not being ready: that may take as long as a first read, or as Kafka is away.
    for name in {"livenessProbe", "startupProbe"} & container(workload).keys():
        assert container(workload)[name]["httpGet"] == {"path": "/metrics", "port": "metrics"}


@each_part
def test_pods_are_restricted(workload: Manifest) -> None:
    """As the namespace demands, and no token, no root file system to write to, a limit of memory."""
    spec, one = pod(workload)["spec"], container(workload)
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert {"cpu", "memory"} <= one["resources"]["requests"].keys()
    assert "memory" in one["resources"]["limits"]


@each_part
def test_selectors_take_their_own_pods_only(workload: Manifest) -> None:
    """Labels and selectors agree, and Prometheus is told the right port."""
    own = workload["spec"]["selector"]["matchLabels"]
    assert [other["metadata"]["name"] for other in PARTS if selects(own, other)] == [
        workload["metadata"]["name"]
    ]
    notes = pod(workload)["metadata"]["annotations"]
    assert notes["prometheus.io/scrape"] == "true"
    assert int(notes["prometheus.io/port"]) == ports(workload)["metrics"]


@pytest.mark.parametrize("service", list(of_kind("Service")), ids=lambda one: str(one["metadata"]["name"]))
def test_services_lead_to_ports_that_are_there(service: Manifest) -> None:
    """To pods of one workload; ports with names are declared there."""
    (workload,) = [one for one in PARTS if selects(service["spec"]["selector"], one)]
    assert workload["metadata"]["name"] == service["metadata"]["name"]
    for port in service["spec"]["ports"]:
        if isinstance(port["targetPort"], str):
            assert ports(workload)[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("name", [BASE.name, *OVERLAYS])
def test_settings_are_valid(name: str, tmp_path: Path) -> None:
    """Our reader takes every section, and there is no other."""
    pair = Authority(tmp_path).server()
    text = (FOLDER / name / "weir.yaml").read_text()
    for mounted, here in zip(("tls.crt", "tls.key"), pair, strict=True):
        text = text.replace(f"/run/secrets/tls/{mounted}", here)
    file = tmp_path / "weir.yaml"
    file.write_text(text)
    sections = dict(SECTIONS)
    assert set(yaml.safe_load(text)) <= sections.keys()
    for section, cls in sections.items():
        read_settings(cls, section, str(file))


def test_clients_are_told_what_the_service_has() -> None:
    """Its name, and its ports."""
    proxy = read_settings(ProxySettings, "proxy", SETTINGS)
    assert proxy.advertise == "weir-proxy.weir.svc.cluster.local"
    clients_are_told_what_is_there(proxy)


def test_a_proxy_is_given_the_time_to_drain() -> None:
    """preStop, then what is under way, then its last words, all before the kill."""
    proxy = named("Deployment", "weir-proxy")
    (slept,) = container(proxy)["lifecycle"]["preStop"]["exec"]["command"][1:]
    stops_s = read_settings(ProxySettings, "proxy", SETTINGS).stop_timeout_ms / 1000
    assert pod(proxy)["spec"]["terminationGracePeriodSeconds"] >= int(slept) + stops_s + FLUSHED_S
    (budget,) = of_kind("PodDisruptionBudget")
    assert selects(budget["spec"]["selector"]["matchLabels"], proxy)
    assert budget["spec"]["maxUnavailable"] < proxy["spec"]["replicas"]
    assert proxy["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_job_is_one_and_keeps_its_checkpoint() -> None:
    """On a volume of its own, within the time that it has to stop."""
    job = named("StatefulSet", "weir-job")
    read = read_settings(JobSettings, "job", SETTINGS)
    (data,) = [one["mountPath"] for one in container(job)["volumeMounts"] if one["name"] == "data"]
    assert job["spec"]["replicas"] == 1 and str(read.checkpoint_dir).startswith(data)
    assert pod(job)["spec"]["terminationGracePeriodSeconds"] > read.stop_timeout_s


def test_ports_of_metrics_are_the_same_everywhere() -> None:
    """In Kubernetes, and where compose's Prometheus scrapes."""
    scraped = yaml.safe_load((COMPOSE / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    by_part = {
        static["labels"]["part"]: int(static["targets"][0].rpartition(":")[2])
        for job in scraped
        for static in job.get("static_configs", [])
    }
    assert by_part == {
        name.removeprefix("weir-"): ports(one)["metrics"] for name, one in zip(NAMES, PARTS, strict=True)
    }
    allowed = named("NetworkPolicy", "weir-metrics")["spec"]["ingress"][0]["ports"]
    assert allowed == [{"protocol": "TCP", "port": min(by_part.values()), "endPort": max(by_part.values())}]


def test_pods_that_have_ended_are_not_scraped() -> None:
    """One that was evicted stays in the list of pods, and would be a proxy that is down for good."""
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", page, re.DOTALL)
    (scraped,) = yaml.safe_load(block)["scrape_configs"]
    phase, ended = "__meta_kubernetes_pod_phase", "Succeeded|Failed"
    assert {"source_labels": [phase], "regex": ended, "action": "drop"} in scraped["relabel_configs"]
