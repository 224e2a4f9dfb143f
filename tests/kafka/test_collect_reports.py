"""Reports of a collector on a real broker, and that there is one collector of a cluster."""

import orjson
import pytest
from cluster_kit import Cluster, fresh

from streaming.collect.reports import Reports, TakenOver
from streaming.contract.topics import Topics
from weir.logs.reading import TopicReader

LIMIT_S = 20.0


def reports(cluster: Cluster, topics: Topics, lease: str) -> Reports:
    """Of one more collector."""
    return Reports(cluster.kafka.bootstrap, topics.usage, lease, {}, LIMIT_S)


def test_the_newest_collector_is_the_one(cluster: Cluster, topics: Topics) -> None:
    """The one before learns it with its next report, which nobody sees; those of other clusters go on."""
    lease = fresh("collect")
    first, elsewhere = reports(cluster, topics, lease), reports(cluster, topics, f"{lease}-2")
    event = {"type": "group_usage", "broker": "b", "period_ms": 1, "usage": {}}
    first.write([("b", {**event, "id": "1"})])
    second = reports(cluster, topics, lease)
    with pytest.raises(TakenOver, match=f"another collector has taken over as {lease}"):
        first.write([("b", {**event, "id": "2"})])
    second.write([("b", {**event, "id": "3"})])
    elsewhere.write([("b", {**event, "id": "4"})])
    reader = TopicReader(cluster.kafka.bootstrap, {})
    try:
        spans = reader.spans(topics.usage, 0, None)
        said = [orjson.loads(record.value or b"{}") for span in spans for record in reader.read(span)]
    finally:
        reader.close()
    ids = [one.get("id") for one in said]
    assert [one for one in ids if one in ("1", "2", "3", "4")] == ["1", "3", "4"]
