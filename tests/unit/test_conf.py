"""The files under conf/ and docs/ say what the code says."""

import re
from pathlib import Path

import pytest
from concurrency_kit import Times, partitions_at
from meter_kit import Desk
from prometheus_client import CollectorRegistry
from publish_kit import World as Publishing

from enforcer.control.metrics import AdminMetrics
from enforcer.core.metrics import Metrics
from enforcer.laws.backlog.metrics import BlockMetrics
from enforcer.laws.concurrency.metrics import ConcurrencyCollector
from enforcer.laws.dispatch.counter_table import CounterTable
from enforcer.laws.dispatch.metrics import DispatchCollector
from enforcer.laws.dispatch.terms import Terms
from enforcer.laws.shares.group_metrics import GroupCollector
from enforcer.pulsar.creation.metrics import CreationMetrics
from enforcer.pulsar.metrics import PulsarMetrics
from streaming.collect.backlog.metrics import BacklogMetrics
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.policy.files import load_policies
from streaming.policy.policy_set import PolicySet
from streaming.policy.settings import read_settings
from streaming.policy.timeline import PolicyTimeline
from weir.settings_file import SECTIONS, render

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf" / "weir.yaml"
METRIC_ROW = re.compile(r"^\| `((?:weir|pulsar|zeebe)_\w+)` \| (\w+) \|\s*([\w, ]*?)\s*\|", re.MULTILINE)


def test_settings_file_is_what_the_code_says() -> None:
    """conf/weir.yaml is made from the settings' classes: `python -m weir.settings_file > conf/weir.yaml`."""
    assert CONF.read_text() == render()


def test_settings_file_reads_back_as_the_defaults() -> None:
    """Every section of conf/weir.yaml is accepted and gives the defaults."""
    for name, cls in SECTIONS:
        assert read_settings(cls, name, str(CONF)) == cls()


def test_example_policies_are_valid_and_limit_the_demo() -> None:
    """conf/policies.yaml has no problems; each of the demo's clients has its own bucket at rate 1."""
    policies = PolicySet(load_policies(str(ROOT / "conf" / "policies.yaml")))
    for client in ("demo-java", "demo-kafka-python", "demo-confluent"):
        quota = policies.mutation_quota("ANONYMOUS", client)
        assert quota is not None
        assert (quota.subject, quota.rate, quota.burst) == (f"user=ANONYMOUS,client-id={client}", 1.0, 11.0)


def documented(part: str) -> dict[str, tuple[str, str]]:
    """Metrics listed in docs/metrics.md whose names begin so: name without _total -> (type, labels)."""
    rows = METRIC_ROW.findall((ROOT / "docs" / "metrics.md").read_text())
    return {
        name.removesuffix("_total"): (kind, labels.strip())
        for name, kind, labels in rows
        if name.startswith(part)
    }


FETCHES = tuple(f"weir_dispatch_{name}_fetches" for name in ("held", "cut", "ambiguous", "large"))
"""What dispatch rates do to Kafka's Fetch requests: counted by the proxy, not by the arithmetic."""


def test_metrics_of_the_proxy_are_listed() -> None:
    """docs/metrics.md names every metric of the proxy with its type, and no other."""
    families = {family.name: family.type for family in Metrics(subjects_max=1).registry.collect()}
    of_groups = {"weir_proxy_groups", "weir_proxy_unmetered"}
    listed = {
        name: kind
        for part in ("weir_proxy_", "weir_unacknowledged_", *FETCHES)
        for name, (kind, _) in documented(part).items()
        if name not in of_groups
    }
    assert listed == families


def test_metrics_of_the_pulsar_proxy_are_listed() -> None:
    """The same for those of what keeps its clients there."""
    registry = CollectorRegistry()
    PulsarMetrics(registry)
    families = {family.name: family.type for family in registry.collect()}
    listed = {name: kind for name, (kind, _) in documented("weir_pulsar_").items()}
    assert families.items() <= listed.items()


def test_metrics_of_groups_are_listed() -> None:
    """The same for those that are there for each group."""
    desk = Desk({})
    collector = GroupCollector(desk.context, desk.meter, desk.reports, {})
    families = {family.name: family.type for family in collector.collect()}
    parts = ("weir_group_", "pulsar_resource_group_")
    listed = {name: kind for part in parts for name, (kind, _) in documented(part).items()}
    listed |= {name: kind for name, (kind, _) in documented("weir_proxy_").items() if name in families}
    assert listed == families


def test_metrics_of_dispatch_rates_are_listed() -> None:
    """The same for those of deliveries."""
    table = CounterTable(PolicyTimeline(), counters_max=1, tail_max=1)
    collector = DispatchCollector(table, {}, lambda: Terms(PolicySet()), lambda: 0, 1)
    families = {family.name: family.type for family in collector.collect()}
    parts = ("weir_dispatch_", "pulsar_subscription_")
    listed = {name: kind for part in parts for name, (kind, _) in documented(part).items()}
    assert {name: kind for name, kind in listed.items() if name not in FETCHES} == families


def test_metrics_of_blocked_producers_are_listed() -> None:
    """The same for those of topics beyond their backlog quota."""
    registry = CollectorRegistry()
    BlockMetrics(registry)
    families = {family.name: family.type for family in registry.collect()}
    assert {name: kind for name, (kind, _) in documented("weir_producer_").items()} == families


def test_metrics_of_concurrency_are_listed() -> None:
    """The same for those that are there for each limited partition."""
    partitions, _ = partitions_at(Times())
    families = {family.name: family.type for family in ConcurrencyCollector(partitions).collect()}
    parts = ("weir_concurrency_", "zeebe_")
    listed = {name: kind for part in parts for name, (kind, _) in documented(part).items()}
    assert listed == families


def test_metrics_of_creations_are_listed() -> None:
    """The same for those of topics that Pulsar's clients create."""
    registry = CollectorRegistry()
    CreationMetrics(registry)
    families = {family.name: family.type for family in registry.collect()}
    assert {name: kind for name, (kind, _) in documented("weir_creation_").items()} == families


def test_metrics_of_publishing_on_pulsar_are_listed() -> None:
    """The same for SENDs that wait."""
    parts = ("weir_publish_", "pulsar_publish_")
    found = Publishing().metrics.registry.collect()
    families = {family.name: family.type for family in found if family.name.startswith(parts)}
    assert {name: kind for part in parts for name, (kind, _) in documented(part).items()} == families


def test_metrics_of_the_admin_api_are_listed() -> None:
    """The same for those of the admin API."""
    families = {family.name: family.type for family in AdminMetrics().registry.collect()}
    assert {name: kind for name, (kind, _) in documented("weir_admin_").items()} == families


def test_metrics_of_the_collector_are_listed() -> None:
    """The same for those of the collector of Pulsar."""
    families = {family.name: family.type for family in CollectMetrics().registry.collect()}
    assert {name: kind for name, (kind, _) in documented("weir_collect_").items()} == families


@pytest.mark.parametrize("topic_metrics", [True, False])
def test_metrics_of_backlogs_are_listed(topic_metrics: bool) -> None:
    """The same for those of the collectors of backlogs."""
    registry = CollectorRegistry()
    BacklogMetrics(registry, "c", topic_metrics=topic_metrics, topics_max=1)
    families = {family.name: family.type for family in registry.collect()}
    parts = ("weir_backlog_", "pulsar_storage_", "pulsar_broker_storage_")
    listed = {name: kind for part in parts for name, (kind, _) in documented(part).items()}
    assert families.items() <= listed.items()
    if topic_metrics:
        assert families == listed


def test_metrics_of_job_and_stack_are_listed() -> None:
    """The same for the others, read from the source: importing the job would load Spark."""
    job = set(re.findall(r'"(weir_job_\w+)"', (ROOT / "streaming/job/process/progress.py").read_text()))
    stack = set(re.findall(r'"(weir_part_\w+)"', (ROOT / "weir/stack/scrape.py").read_text()))
    assert set(documented("weir_job_")) == job
    assert set(documented("weir_part_")) == stack


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_are_there(page: Path) -> None:
    """A path or a file's name in a page leads a reader to exactly that."""
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*.py")}
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text()))
    ends = {f"/{path}" for path in there}
    assert [name for name in named if not any(end.endswith(f"/{name}") for end in ends)] == []


LINKING = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "compose").glob("*.md")])


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_pages_and_sections(page: Path) -> None:
    """Each link within the repository: its file is there, and so is the heading that it names."""
    for link in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text()):
        path, _, section = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if section:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert section in named, link
