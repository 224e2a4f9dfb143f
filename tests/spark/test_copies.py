"""What a producer sent again is decided once, by a real job, and stands once in a dump of its topics."""

import time
from pathlib import Path

import orjson
from bench_kit import PACKED, TOPICS, Event, bench
from law_kit import quota, request
from packed_events_kit import rows_of

from streaming.columns.packed import pack
from streaming.columns.sent import SENT_HEADER, stamps
from streaming.contract.topics import Cluster
from weir.logs.dump import dump

SEVERAL = "job: {shards: 3, shuffle_partitions: 2}\n"
USER = "user=alice"


def asked(name: str) -> Event:
    """A request of three partitions, of five a second at most."""
    fields = request(name, 0, 3, user="alice", subject=USER, strict=True)
    return {key: value for key, value in fields.items() if key != "ts"}


def delivered() -> Event:
    """A report of deliveries."""
    return {
        "type": "dispatch_usage", "topic": "persistent://a/b/t", "subscription": "s", "broker": "b",
        "msgs": 1, "bytes": 1, "entries": 1, "backlog": True,
    }  # fmt: skip


def names(decided: list[Event], kind: str) -> list[str]:
    """Ids of decisions of a type, in order."""
    return [one["id"] for one in decided if one["type"] == kind]


def test_what_is_sent_again_is_decided_once(tmp_path: Path) -> None:
    """Single events and packed ones; in one batch and later."""
    with bench(tmp_path, SEVERAL, 1) as running:
        stamp = stamps(b"producer")
        sent = [(SENT_HEADER, stamp()) for _ in range(6)]
        (deliveries,) = pack("dispatch_usage", rows_of([delivered(), delivered()]))

        def write(*which: int) -> None:
            for number in which:
                if number == 4:
                    running.write(TOPICS.usage, deliveries, headers=[*PACKED, sent[number]])
                else:
                    running.write(TOPICS.requests, asked(f"r{number}"), USER, headers=[sent[number]])

        running.tell({"quotas[user=alice]": quota(1, 5)})
        running.job.start()
        write(0, 1, 2, 1, 2, 4, 4)
        running.until(lambda found: len(found) >= 5)
        write(2, 4, 3, 3, 5)
        decided = running.until(lambda found: "r5" in names(found, "admission"))
        assert names(decided, "admission") == ["r0", "r1", "r2", "r3", "r5"]
        # Default ids, so that a copy of a row would have another one.
        assert set(names(decided, "dispatch")) == {"weir.usage-0-0/0", "weir.usage-0-0/1"}
        file = tmp_path / "dump.jsonl"
        cluster = Cluster(running.bootstrap, TOPICS)
        until_ms = int(time.time() * 1000) + 60_000
        counts = dump(cluster, 0, until_ms, file, progress=lambda text: None)
    dumped = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert [one["id"] for one in dumped if one["type"] == "request"] == ["r0", "r1", "r2", "r3", "r5"]
    assert (counts.copies, len([one for one in dumped if one["type"] == "dispatch_usage"])) == (6, 2)
