"""Samples as events: the job reads what was written, JSON or packed."""

from typing import Any

from concurrency_kit import MS

from benchmarks.kit.lone_proxy import context
from enforcer.core.bounds import PACK_MIN
from enforcer.core.law import Clock
from enforcer.laws.concurrency.limits import SamplesOut
from streaming.columns.packed import unpack
from streaming.contract.broker_events import Sample, latency

EPOCH_MS = 1_795_166_668_375
NOW_NS = 500 * MS


def out() -> tuple[SamplesOut, list[tuple[dict[str, Any], str]], list[tuple[bytes, str]]]:
    """What writes samples; the events and the packed records that it has sent, each with its key."""
    events: list[tuple[dict[str, Any], str]] = []
    packs: list[tuple[bytes, str]] = []
    ends = context(
        Clock(steady_ms=lambda: 0.0, wall_ms=lambda: EPOCH_MS),
        send_usage=lambda event, key: events.append((event, key)),
        send_usage_pack=lambda value, key: packs.append((value, key)),
    )
    return SamplesOut(ends, lambda: NOW_NS), events, packs


def test_an_event_holds_the_samples_of_a_partition() -> None:
    """Starts on the brokers' clock, keyed by the partition."""
    send, events, _ = out()
    send({"broker-1": [Sample(470 * MS, 14 * MS, 6, False), Sample(480 * MS, 20 * MS, 2, True)]})
    send({"broker-1": [Sample(490 * MS, 1, 1, False)]})
    (first, key), (second, _) = events
    assert key == "broker-1"
    assert first == {
        "type": "latency", "id": f"p1-latency-{EPOCH_MS}-1", "ts": EPOCH_MS, "partition": "broker-1",
        "samples": [[(EPOCH_MS - 30) * MS, 14 * MS, 6, False], [(EPOCH_MS - 20) * MS, 20 * MS, 2, True]],
    }
    assert second["id"] != first["id"]
    read = latency(first, first["id"], first["ts"])
    assert (read.alone, read.wrong) == (False, None)


def test_many_partitions_are_one_packed_record() -> None:
    """From PACK_MIN partitions on; it says the same."""
    send, events, packs = out()
    send({f"broker-{n}": [Sample(470 * MS, n + 1, n + 1, n == 1)] for n in range(PACK_MIN)})
    assert events == []
    ((value, key),) = packs
    kind, rows = unpack(value)
    assert (kind, key, rows.num_rows) == ("latency", "p1", PACK_MIN)
    event = rows.to_pylist()[1]
    assert event["partition"] == "broker-1"
    assert event["samples"] == [[(EPOCH_MS - 30) * MS, 2, 2, 1]]
