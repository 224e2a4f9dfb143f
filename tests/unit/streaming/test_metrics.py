"""Labels as anybody may choose them, on the page that Prometheus reads."""

import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from streaming.contract.errors import WeirError
from streaming.metrics_server import serve_metrics

NAMES = ("a\x1b[2Jb", "a\u202eb", "a\x85b", "\udcff", 'q"\\n', "é", "plain")
SHOWN = ("a\\x1b[2Jb", "a\\u202eb", "a\\x85b", "\\udcff", 'q"\\n', "é", "plain")


def read(url: str) -> tuple[str, dict[str, float]]:
    """The page, and its samples by their label."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        text = answer.read().decode()
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return text, {one.labels["topic"]: one.value for one in found if one.name == "weir_seen_total"}


def test_labels_are_shown_and_not_obeyed() -> None:
    """Of every metric of a registry, whatever its names are; what everybody can read stays as it is."""
    registry = CollectorRegistry()
    counter = Counter("weir_seen", "Seen", ["topic"], registry=registry)
    for number, name in enumerate(NAMES):
        counter.labels(name).inc(number)
    Gauge("weir_other", "Without", registry=registry).set(1)
    url = serve_metrics(registry, "127.0.0.1", 0)
    text, shown = read(url)
    assert all(line.isprintable() for line in text.split("\n"))
    assert {name: shown[name] for name in SHOWN} == {name: n for n, name in enumerate(SHOWN)}
    only, _ = read(f"{url}?name[]=weir_other")
    assert "weir_other 1.0" in only and "weir_seen" not in only


def test_an_address_that_is_taken_is_said() -> None:
    """In a line."""
    port = int(serve_metrics(CollectorRegistry(), "127.0.0.1", 0).split(":")[2].partition("/")[0])
    with pytest.raises(WeirError, match="cannot serve metrics on 127"):
        serve_metrics(CollectorRegistry(), "127.0.0.1", port)
