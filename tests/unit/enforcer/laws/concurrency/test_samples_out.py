"""Samples as events: the job reads what was written, JSON or packed."""

from collections.abc import Mapping
from typing import Any

from concurrency_kit import MS
from context_kit import context

from enforcer.core.law import Clock
from enforcer.laws.concurrency.limits import SamplesOut
from streaming.columns.packed import unpack
from streaming.contract.broker_events import Sample, latency

EPOCH_MS = 1_795_166_668_375
NOW_NS = 500 * MS


class Sent:
    """What was sent, and by which key."""

    def __init__(self) -> None:
        self.events: list[tuple[dict[str, Any], str]] = []
        self.packs: list[tuple[bytes, str]] = []

    def send(self, event: Mapping[str, Any], key: str) -> bool:
        """Take an event."""
        self.events.append((dict(event), key))
        return True

    def send_pack(self, value: bytes, key: str) -> bool:
        """Take a packed record."""
        self.packs.append((value, key))
        return True

    def out(self, pack_min: int = 16) -> SamplesOut:
        """What writes here."""
        ends = context(
            Clock(steady_ms=lambda: 0.0, wall_ms=lambda: EPOCH_MS),
            send_usage=self.send, send_usage_pack=self.send_pack,
        )  # fmt: skip
        return SamplesOut(ends, lambda: NOW_NS, pack_min)


def test_an_event_holds_the_samples_of_a_partition() -> None:
    """Starts on the brokers' clock, in flight as of all enforcers, keyed by the partition."""
    sent = Sent()
    out = sent.out()
    out(
        {"broker-1": [Sample(470 * MS, 14 * MS, 3, False), Sample(480 * MS, 20 * MS, 1, True)]},
        {"broker-1": 0.5},
    )
    out({"broker-1": [Sample(490 * MS, 1, 1, False)]}, {"broker-1": 1.0})
    (first, key), (second, _) = sent.events
    assert key == "broker-1"
    assert first == {
        "type": "latency", "id": f"p1-latency-{EPOCH_MS}-1", "ts": EPOCH_MS, "partition": "broker-1",
        "samples": [[(EPOCH_MS - 30) * MS, 14 * MS, 6, False], [(EPOCH_MS - 20) * MS, 20 * MS, 2, True]],
    }
    assert second["id"] != first["id"]
    read = latency(first, first["id"], first["ts"])
    assert (read.alone, read.wrong) == (False, None)


def test_many_partitions_are_one_packed_record() -> None:
    """From pack_min partitions on; it says the same."""
    sent = Sent()
    out = sent.out(pack_min=3)
    out(
        {f"broker-{n}": [Sample(470 * MS, n + 1, n + 1, n == 1)] for n in range(3)},
        dict.fromkeys(("broker-0", "broker-1", "broker-2"), 1.0),
    )
    assert sent.events == []
    ((value, key),) = sent.packs
    kind, rows = unpack(value)
    assert (kind, key, rows.num_rows) == ("latency", "p1", 3)
    event = rows.to_pylist()[1]
    assert event["partition"] == "broker-1"
    assert event["samples"] == [[(EPOCH_MS - 30) * MS, 2, 2, 1]]
