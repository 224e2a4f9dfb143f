"""What compose/ asks Prometheus: its rules, its dashboard, and what metrics there are (docs/metrics.md)."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"
RULES = COMPOSE / "prometheus" / "rules.yml"
DASHBOARD = COMPOSE / "grafana" / "dashboards" / "weir.json"
OF_THE_SCRAPE = {"job", "instance", "part", "le"}
"""Labels that no table of ours names: the scraper's, `part` (docs/metrics.md, beginning), a histogram's."""

_ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \|\s*([\w, ]*?)\s*\|", re.MULTILINE)
_SELECTOR = re.compile(r"\b((?:weir|pulsar|zeebe)_\w+|up)\b(\{[^}]*\})?(?:\[\w+\])?(?!\s*\()")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


def documented_rows() -> list[tuple[str, str, str]]:
    """The tables of docs/metrics.md: name, type and labels of each metric, with commas between."""
    return _ROW.findall((ROOT / "docs" / "metrics.md").read_text())


def documented() -> dict[str, tuple[str, set[str]]]:
    """All metrics of docs/metrics.md: series' name -> (type, labels); histograms by their three series."""
    found: dict[str, tuple[str, set[str]]] = {"up": ("gauge", set())}
    for name, kind, labels in documented_rows():
        names = set(labels.replace(",", " ").split())
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {f"{name}{end}": (kind, names) for end in ends}
    return found


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and where it stands."""

    where: str
    expr: str

    @property
    def selectors(self) -> list[str]:
        """Its vector selectors, without ranges."""
        return [f"{name}{matchers}" for name, matchers in _SELECTOR.findall(self._bare)]

    @property
    def metrics(self) -> list[tuple[str, set[str]]]:
        """Each metric with the labels that its matchers name."""
        return [(name, set(_MATCHER.findall(matchers))) for name, matchers in _SELECTOR.findall(self._bare)]

    @property
    def grouped(self) -> set[str]:
        """Labels that it groups or joins by."""
        return {
            label.strip()
            for labels in _GROUPING.findall(self.expr)
            for label in labels.split(",")
            if label.strip()
        }

    @property
    def _bare(self) -> str:
        return _GROUPING.sub("", self.expr)


def alerts() -> Iterator[dict[str, Any]]:
    """The rules, as they stand in the file."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def rule_queries() -> list[Query]:
    """What the rules ask."""
    return [Query(f"rule {rule['alert']}", rule["expr"]) for rule in alerts()]


def panels() -> Iterator[dict[str, Any]]:
    """The dashboard's panels, those inside rows too."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def panel_queries() -> list[Query]:
    """What the dashboard asks, its variables replaced by all."""
    queries = []
    for panel in panels():
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "5m")
            queries.append(Query(f"panel {panel['title']}", re.sub(r"\$\w+", ".*", expr)))
    return queries


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
