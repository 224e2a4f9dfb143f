"""The files under conf/ and docs/ say what the code says."""

import importlib
import re
from pathlib import Path

from each_kit import each
from monitoring_kit import documented_rows

from streaming.collect.backlog.metrics import NamespaceBacklogs
from streaming.kafka_io.topic_watch import TopicMetrics
from streaming.metrics import MetricTable, Row
from streaming.policy.files import load_policies
from streaming.policy.policy_set import PolicySet
from streaming.policy.settings import read_settings
from weir.settings_file import SECTIONS, render

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf" / "weir.yaml"


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


def tables() -> list[type[MetricTable]]:
    """Every table of metrics, wherever it is declared."""
    for package in ("streaming", "enforcer", "weir"):
        for path in (ROOT / package).rglob("*.py"):
            if "(MetricTable)" in path.read_text():
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = MetricTable.__subclasses__()
    for table in found:
        found += table.__subclasses__()
    return found


def test_metrics_are_listed() -> None:
    """docs/metrics.md names every family with its type and its labels, once, and no other."""
    stack = re.search(r'"(weir_part_\w+)"', (ROOT / "weir/stack/scrape.py").read_text())
    assert stack is not None
    declared = [(stack[1], "gauge", "part")]
    # Topics are looked at by three parts. Rows of namespaces are those of topics without the label.
    prefixes = {TopicMetrics: ["weir_proxy_", "weir_admin_", "weir_job_"], NamespaceBacklogs: []}
    for table in tables():
        for prefix in prefixes.get(table, [table.prefix]):
            for attribute, row in vars(table).items():
                if isinstance(row, Row):
                    name = (row.name or prefix + attribute) + "_total" * (row.kind == "counter")
                    declared.append((name, row.kind, ", ".join(row.labels.split())))
    assert sorted(documented_rows()) == sorted(declared)


@each("page", sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")]))
def test_pages_name_files_that_are_there(page: Path) -> None:
    """A path or a file's name in a page leads a reader to exactly that."""
    there = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("[!.]*/**/*.py")}
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", page.read_text()))
    ends = {f"/{path}" for path in there}
    assert [name for name in named if not any(end.endswith(f"/{name}") for end in ends)] == []


@each("page", sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "compose").glob("*.md")]))
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
