"""What proxies measure and deliver, packed, through `weir job` on a real broker."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import with_constant
from bench_kit import PACKED, Bench, bench
from job_broker_kit import TOPICS, Event, check_dead_letters
from law_kit import quota, request
from pack_kit import rows_of

from streaming.columns.packed import pack
from streaming.columns.sent import SENT_HEADER, stamps
from streaming.contract.topics import Cluster
from weir.logs.dump import dump

TOPIC = "persistent://acme/orders/t1"
DAY = {"dispatchThrottlingRateInMsg": 100, "ratePeriodInSecond": 86_400}
POLICIES: dict[str, Event] = {
    "backpressure.partitions.*": {"algorithm": "aimd", "useWindowed": False},
    "namespaces.acme/orders": {"subscriptionDispatchRate": DAY},
    "broker": {"dispatchThrottlingRateInByte": 10},
    "quotas[user=alice]": quota(1, 5),
}
NS = 10**6


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A job that ticks each second, packs all that it can, and has read the policies."""
    packing = with_constant.at("streaming.job.query", "PACK_MIN", 2)
    folder, settings = tmp_path_factory.mktemp("busy"), "job: {tick_interval_ms: 1000}\n"
    with bench(folder, settings, partitions=1, module=packing) as made:
        made.tell(POLICIES)
        made.job.start()
        yield made


def send(busy: Bench, *events: Event) -> None:
    """Write events of one type as one packed record."""
    for value in pack(events[0]["type"], rows_of(events)):
        busy.write(TOPICS.usage, value, headers=PACKED)


def measured(name: str, partition: str, *rtts_ms: int, inflight: int = 60) -> Event:
    """Samples of one proxy; 200 ms is the time after which aimd takes a request for bad."""
    samples = [[number, rtt * NS, inflight, False] for number, rtt in enumerate(rtts_ms)]
    return {"type": "latency", "id": name, "partition": partition, "samples": samples}


def of_type(decisions: list[Event], name: str) -> list[Event]:
    return [one for one in decisions if one["type"] == name]


def test_samples_in_packs_move_limits_which_are_said_again(busy: Bench) -> None:
    """One decision a partition and batch, only if the limit changed; repeated at a quarter of its life."""
    send(busy, measured("a", "broker-1", 300, 300), measured("b", "broker-2", 10))
    first = busy.until(lambda found: len(of_type(found, "limit")) >= 2)
    limits: dict[str, Any] = {one["id"]: (one["partition"], one["limit"]) for one in of_type(first, "limit")}
    assert limits == {"a/1": ("broker-1", 81), "b/0": ("broker-2", 101)}
    # With so few in flight the second partition's limit stays: nothing is to be said.
    send(
        busy, measured("c", "broker-1", 10, 10, 10, 300), measured("calm", "broker-2", 10, 10, inflight=1),
        measured("d", "broker-3", 10),
    )  # fmt: skip
    told = busy.until(lambda found: any(one["id"] == "d/0" for one in found))
    assert [one["limit"] for one in of_type(told, "limit") if one["id"] == "c/3"] == [int((81 + 3) * 0.9)]
    assert not any(one["id"].startswith("calm") for one in told)
    said = busy.until(lambda found: sum(one.get("repeat", False) for one in of_type(found, "limit")) >= 3)
    again = {one["id"]: one for one in of_type(said, "limit") if one.get("repeat")}
    assert set(again) == {"b/0", "c/3", "d/0"}
    assert all(one["ttl_ms"] == 60_000 for one in again.values())


def test_deliveries_in_packs_are_answered_with_counters(busy: Bench) -> None:
    """Two proxies deliver for one broker: the second is told of what the first has delivered, too."""
    delivery = {
        "type": "dispatch_usage", "broker": "broker-1", "topic": TOPIC, "subscription": "s", "entries": 1,
        "backlog": True,
    }  # fmt: skip
    rows = [
        delivery | {"id": f"{proxy}-{number}", "proxy": proxy, "msgs": 30, "bytes": 4}
        for number in range(3)
        for proxy in ("p1", "p2")
    ]
    send(busy, *rows)
    decided = of_type(busy.until(lambda found: len(of_type(found, "dispatch")) >= len(rows)), "dispatch")
    assert [one["id"] for one in decided] == [row["id"] for row in rows]
    assert [one["proxy"] for one in decided] == ["p1", "p2"] * 3
    msgs = [one["acquired"]["subscription"] for one in decided]
    assert msgs == [{"msgs": 30 * n, "bytes": 0} for n in range(1, 7)]
    assert [one["acquired"]["broker"]["bytes"] for one in decided] == [4 * n for n in range(1, 7)]
    assert all(set(one["acquired"]) == {"broker", "subscription"} for one in decided)
    # 180 of 100 a day: the day after tomorrow at the latest.
    assert 86_400_000 < decided[-1]["ttl_ms"] <= 2 * 86_400_000


def test_what_is_sent_again_is_decided_once(busy: Bench, tmp_path: Path) -> None:
    """Single events and packed ones, in one batch and later; and in a dump each stands once."""
    fields = {"type": "dispatch_usage", "topic": "persistent://a/b/t", "subscription": "s", "broker": "b"}
    stamp = stamps(b"producer")
    sent = [(SENT_HEADER, stamp()) for _ in range(6)]
    (deliveries,) = pack(
        "dispatch_usage", rows_of([fields | {"msgs": 1, "bytes": 1, "entries": 1, "backlog": True}] * 2)
    )

    def write(*which: int) -> None:
        for number in which:
            if number == 4:
                busy.write(TOPICS.usage, deliveries, headers=[*PACKED, sent[number]])
                continue
            event = request(f"r{number}", 0, 3, user="alice", subject="user=alice", strict=True)
            del event["ts"]
            busy.write(TOPICS.requests, event, "user=alice", headers=[sent[number]])

    def requests(decided: list[Event]) -> list[str]:
        return [one["id"] for one in of_type(decided, "admission") if "repeat" not in one]

    def reports(decided: list[Event]) -> set[str]:
        # Default ids, so that a copy of a row would have another one.
        return {one["id"] for one in of_type(decided, "dispatch") if one["id"].startswith(f"{TOPICS.usage}-")}

    write(0, 1, 2, 1, 2, 4, 4)
    busy.until(lambda found: len(requests(found)) + len(reports(found)) >= 5)
    write(2, 4, 3, 3, 5)
    decided = busy.until(lambda found: "r5" in requests(found))
    assert requests(decided) == ["r0", "r1", "r2", "r3", "r5"]
    first, second = sorted(reports(decided))
    assert (first[-2:], second) == ("/0", f"{first[:-2]}/1")
    file, until_ms = tmp_path / "dump.jsonl", int(time.time() * 1000) + 60_000
    counts = dump(Cluster(busy.bootstrap, TOPICS), 0, until_ms, file, progress=lambda text: None)
    dumped = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert [one["id"] for one in dumped if one["type"] == "request"] == ["r0", "r1", "r2", "r3", "r5"]
    assert (counts.copies, len([one for one in dumped if one.get("topic") == fields["topic"]])) == (6, 2)


def test_what_cannot_be_used_is_a_dead_letter(busy: Bench) -> None:
    """Each record of such, beside those that can."""
    check_dead_letters(busy)


@pytest.mark.soak
def test_counters_are_said_again(busy: Bench) -> None:
    """After half a minute, while they are not 0."""
    delivery = {
        "type": "dispatch_usage", "broker": "broker-2", "topic": TOPIC, "subscription": "s", "entries": 1,
        "backlog": True, "id": "again", "proxy": "p1", "msgs": 130, "bytes": 4,
    }  # fmt: skip
    send(busy, delivery)

    def said(found: Any) -> list[dict[str, Any]]:
        return [one for one in of_type(found, "dispatch") if one["broker"] == "broker-2"]

    first, again = said(busy.until(lambda found: len(said(found)) == 2))
    assert again == first | {"repeat": True}
