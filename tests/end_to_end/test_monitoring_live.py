"""Every query of compose's dashboard and rules finds data in a real Prometheus that scrapes a whole stack."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from exam_kit import Say
from monitored_load import POLICIES, Load, faulty_topic
from monitoring_kit import Query, panel_queries, rule_queries
from prometheus_kit import Prometheus
from stack_kit import START_LIMIT_S, Up, part, until

pytestmark = pytest.mark.soak
LIMIT_S = 180.0
FAULT_AFTER_S = 20.0
MIB = 1 << 20
SETTINGS = """\
proxy: {decision_timeout_ms: 10000}
local: {kafka_port: 0, pulsar_port: 0, pulsar_admin_port: 0}
"""
JOBS: Final = {
    "job": "weir-job", "proxy": "weir-proxy", "admin": "weir-admin", "collect": "weir-collect",
    "pulsar_proxy": "weir-pulsar-proxy",
}  # fmt: skip
"""Part of `weir up` -> job of compose/prometheus/prometheus.yml that scrapes it there."""
WITHOUT_DATA: Final = {
    "weir_local_differences_total": "there once several proxies have disagreed with the law",
    'weir_admin_requests_total{code=~"5.."}': "there once the admin API has failed",
    'weir_collect_pushes_total{result=~"refused|failed"}': "there once Pulsar has refused a limit",
}
"""What a healthy run of a minute has no series of, and why; each is a selector, or how one begins."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Kafka, Pulsar and all parts."""
    words = ("--pulsar", "local", "--pulsar-listen", "127.0.0.1:0")
    with Up(tmp_path_factory.mktemp("monitored"), *words, settings=SETTINGS, policies=POLICIES) as stack:
        yield stack


@contextmanager
def collector(up: Up, folder: Path) -> Iterator[str]:
    """`weir collect pulsar --push`, as of a cluster without a proxy; where its metrics are."""
    settings = folder / "collect.yaml"
    settings.write_text("backlog: {enabled: false}\ncollect_pulsar: {interval_ms: 1000}\n")
    words = ["--kafka", up.ready["kafka"], "--admin", up.ready["pulsar_admin"], "--push"]
    words += ["--settings", str(settings), "--metrics", "127.0.0.1:0"]
    with part(folder, "collect", "pulsar", *words) as ready:
        until(ready.exists, what="the collector's first round", limit_s=START_LIMIT_S)
        yield address(json.loads(ready.read_text())["metrics"])


def address(url: str) -> str:
    """HOST:PORT of a metrics page."""
    return url.removeprefix("http://").removesuffix("/metrics")


def asked() -> list[Query]:
    """Whole queries of panels; of rules, which find nothing while all is well, their selectors."""
    of_rules = [Query(rule.where, selector) for rule in rule_queries() for selector in rule.selectors]
    return [*panel_queries(), *of_rules]


def test_every_query_finds_data(up: Up, tmp_path: Path, say: Say) -> None:
    """Of a stack under a little load of every law, within minutes, but for what is named above."""
    run = Path(up.folder) / "data" / "run"
    targets = {
        job: address(json.loads((run / f"{part}.json").read_text())["metrics"]) for part, job in JOBS.items()
    }
    targets["weir"] = address(up.ready["metrics"])
    missing = {(query.where, query.expr) for query in asked()}
    total, began, faulty = len(missing), time.monotonic(), False
    with collector(up, tmp_path) as collects:
        targets["weir-collect-pulsar"] = collects
        with Prometheus(tmp_path, targets) as prometheus, Load(up.ready) as load:
            while unexplained(missing) and time.monotonic() - began < LIMIT_S:
                time.sleep(2)
                missing = {(where, expr) for where, expr in missing if not prometheus.ask(expr)}
                if not faulty and time.monotonic() - began > FAULT_AFTER_S:
                    faulty = True
                    faulty_topic(up.ready["kafka"], wrong=True)
            faulty_topic(up.ready["kafka"], wrong=False)
            for scraped in prometheus.ask("scrape_samples_scraped"):
                say(f"{scraped['metric']['job']}: {scraped['value'][1]} series")
            for proxy in prometheus.ask("weir_proxy_resident_bytes"):
                say(f"{proxy['metric']['job']}: {float(proxy['value'][1]) / MIB:.0f} MiB")
    took = time.monotonic() - began
    say(f"{total - len(missing)} of {total} queries found data in {took:.0f} s")
    assert unexplained(missing) == [], load.failed


def unexplained(missing: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that nothing above explains."""
    return sorted(one for one in missing if not any(selector in one[1] for selector in WITHOUT_DATA))
