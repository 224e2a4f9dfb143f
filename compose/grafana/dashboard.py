"""Makes the dashboard: `python compose/grafana/dashboard.py > compose/grafana/dashboards/weir.json`.

JSON is hard to review; the tables in rows/ are not. A test holds the file equal to them, another one
runs every query against a Prometheus that scrapes a running stack. In a query `{@}` stands for the
dashboard's variables job and instance, `[RATE]` for the interval of rates.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
ROWS: Final = (
    "overview", "job", "proxy", "mutations", "groups", "dispatch", "concurrency", "backlogs", "pulsar_proxy",
    "admin", "pulsar_collector",
)  # fmt: skip
"""In this order; the first one is open, the others are folded up: a page of eighty panels is slow."""
SCOPE: Final = '{job=~"$job",instance=~"$instance"'
RATE: Final = "[$__rate_interval]"
WIDTH, HEIGHT, ACROSS = 8, 7, 3
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TOPICS: Final = '{__name__=~"pulsar_storage_backlog_size|weir_dispatch_available",job=~"$job"}'
VARIABLES: Final = {
    "job": 'label_values(up{job=~"weir.*"}, job)',
    "instance": 'label_values(up{job=~"$job"}, instance)',
    "group": 'label_values(weir_group_limit{job=~"$job"}, group)',
    "subject": 'label_values(weir_proxy_subject_rate{job=~"$job"}, subject)',
    "topic": f"label_values({TOPICS}, topic)",
}


def dashboard() -> dict[str, Any]:
    """All of it, as Grafana reads it."""
    return {
        "uid": "weir",
        "title": "Weir",
        "description": "All parts and laws of one Weir. Alerts: compose/prometheus/rules.yml.",
        "tags": ["weir"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": list(_variables())},
        "panels": list(_rows()),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    for name, query in VARIABLES.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _rows() -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for name in ROWS:
        row = yaml.safe_load((HERE / "rows" / f"{name}.yaml").read_text())
        folded = name != ROWS[0]
        made = [
            _panel(panel, number + 1 + place, y + 1 + place // ACROSS * HEIGHT, place % ACROSS * WIDTH)
            for place, panel in enumerate(row["panels"])
        ]
        yield {
            "id": number,
            "type": "row",
            "title": row["title"],
            "collapsed": folded,
            "gridPos": {"x": 0, "y": y, "w": WIDTH * ACROSS, "h": 1},
            "panels": made if folded else [],
        }
        number, y = number + 1 + len(made), y + 1
        if not folded:
            yield from made
            y += -(-len(made) // ACROSS) * HEIGHT


def _panel(panel: dict[str, Any], number: int, y: int, x: int) -> dict[str, Any]:
    kind = panel.get("kind", "timeseries")
    lines = kind == "timeseries"
    custom = {"fillOpacity": 8, "showPoints": "never"} if lines else {}
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "description": panel["normal"],
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel["unit"], "custom": custom}, "overrides": []},
        "options": (
            {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
            if lines
            else {"colorMode": "none", "textMode": "value_and_name", "reduceOptions": {"calcs": ["last"]}}
        ),
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query["expr"].replace("{@", SCOPE).replace("[RATE]", RATE),
                "legendFormat": query["legend"],
                "range": lines,
                "instant": not lines,
            }
            for place, query in enumerate(panel["queries"])
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
