"""What compose/ asks Prometheus: of metrics that are there, and alerts that fire when they should."""

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from alert_cases import BESIDE, CASES, HEALTHY
from monitoring_kit import (
    COMPOSE,
    DASHBOARD,
    OF_THE_SCRAPE,
    ROOT,
    RULES,
    Query,
    alerts,
    documented,
    headings,
    panel_queries,
    panels,
    rule_queries,
)

TOLD_AT = "65m"
"""Long after each rule's `for`."""
RUNBOOK = "docs/operate/alerts.md"


@pytest.mark.parametrize("query", [*rule_queries(), *panel_queries()], ids=lambda query: query.where)
def test_queries_name_metrics_and_labels_that_are_there(query: Query) -> None:
    """Each metric stands in docs/metrics.md, with each label that is asked for."""
    there = documented()
    assert query.metrics or "vector(0)" in query.expr
    for name, labels in query.metrics:
        assert name in there, f"{query.where}: {name}"
        assert labels <= there[name][1] | OF_THE_SCRAPE, f"{query.where}: {name}"
    known = set().union(*(there[name][1] for name, _ in query.metrics), OF_THE_SCRAPE)
    assert query.grouped <= known, query.where


def test_counters_are_rates_and_gauges_are_not() -> None:
    """A counter's value says nothing but how often the job began again, a gauge's rate less."""
    there = documented()
    wrong, bare = list[tuple[str, ...]](), set[str]()
    for query in (*rule_queries(), *panel_queries()):
        counters = (name for name, _ in query.metrics if there[name][0] != "gauge")
        bare |= {name for name in counters if not re.search(rf"{name}(\{{[^}}]*\}})?\[", query.expr)}
        for name, function in re.findall(r"(\w+)(?:\{[^}]*\})?\[(\w+)\]", query.expr):
            if there[name][0] == "gauge" and not re.search(rf"(changes|min_over_time)\({name}", query.expr):
                wrong.append((query.where, name, function))
    assert (wrong, bare) == ([], {"weir_job_restarts_total"})


def test_the_dashboard_is_made_from_its_tables() -> None:
    """`python compose/grafana/dashboard.py > compose/grafana/dashboards/weir.json`."""
    assert DASHBOARD.read_text() == generator()["text"]()


def generator() -> dict[str, Any]:
    """What makes the dashboard; it is no part of the product."""
    return runpy.run_path(str(COMPOSE / "grafana" / "dashboard.py"))


def test_the_dashboard_is_legible() -> None:
    """Few panels a row, each with a unit, what is normal, and names of its lines; every number only once."""
    tables = sorted((COMPOSE / "grafana" / "rows").glob("*.yaml"))
    assert {path.stem for path in tables} == set(generator()["ROWS"])
    for path in tables:
        assert len(yaml.safe_load(path.read_text())["panels"]) <= 8, path.name
    shown = list(panels())
    assert len({panel["id"] for panel in shown}) == len(shown)
    for panel in shown:
        assert "Normal" in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] for target in panel["targets"])


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    """Severity, patience, a sentence, and its section of the runbook names it with its severity."""
    sections = (ROOT / RUNBOOK).read_text().split("\n### ")
    listed = {section.partition("\n")[0].lower().replace(" ", "-"): section for section in sections}
    page = headings(ROOT / RUNBOOK)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert re.fullmatch(r"[1-9]\d*m", rule["for"])
        assert rule["annotations"]["summary"].rstrip().endswith(".")
        name, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert name == RUNBOOK and anchor in page, anchor
        assert f"`{rule['alert']}` ({rule['labels']['severity']})" in listed[anchor], rule["alert"]


def test_summaries_name_labels_that_the_alert_has() -> None:
    """A label that is not there would leave a hole in the sentence."""
    there = documented()
    for rule in alerts():
        query = Query(rule["alert"], rule["expr"])
        summed = query.grouped or set().union(*(there[name][1] for name, _ in query.metrics))
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert said <= summed | OF_THE_SCRAPE, rule["alert"]


def test_prometheus_and_grafana_are_given_their_folders() -> None:
    """Where their files say that they look."""
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert "./prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]
    provider = yaml.safe_load((COMPOSE / "grafana/provisioning/dashboards/weir.yml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in services["grafana"]["volumes"]


def promtool(*words: str | Path) -> None:
    """Have it look at a file, in which nothing is wrong."""
    checked = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.soak
def test_prometheus_takes_its_files() -> None:
    """promtool finds nothing wrong with the configuration and the rules that it names."""
    promtool("check", "config", COMPOSE / "prometheus" / "prometheus.yml")


@pytest.mark.soak
def test_each_alert_fires_alone_and_none_when_all_is_well(tmp_path: Path) -> None:
    """promtool runs the rules over an hour of made-up series: an instance for each alert, one is well."""
    firing = {name: [name.removesuffix(" too"), *BESIDE.get(name, ())] for name in CASES}
    assert {alert for alert, *_ in firing.values()} == {rule["alert"] for rule in alerts()}
    told = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                # Between evaluations, as scrapes are.
                "interval": "59s",
                "input_series": [
                    {"series": at(series, name), "values": values}
                    for name, all_series in {"nothing": HEALTHY, **CASES}.items()
                    for series, values in all_series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count by (instance, alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": TOLD_AT,
                        "exp_samples": [
                            {"labels": at(f'{{alertname="{alert}"}}', name), "value": 1}
                            for name, expected in firing.items()
                            for alert in expected
                        ],
                    }
                ],
            }
        ],
    }
    file = tmp_path / "alerts.yml"
    file.write_text(yaml.safe_dump(told))
    promtool("test", "rules", file)


def at(series: str, instance: str) -> str:
    """A series with its instance."""
    name, _, labels = series.removesuffix("}").partition("{")
    return f'{name}{{instance="{instance}"{"," if labels else ""}{labels}}}'
