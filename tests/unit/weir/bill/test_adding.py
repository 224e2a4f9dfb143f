"""What `weir bill` adds up."""

import csv
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from message_kit import Record as Message

from streaming.columns.sent import SENT_HEADER, stamps
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from weir.bill import adding
from weir.bill.adding import Bill, Charges, bill, lines
from weir.logs.topic_reader import Record

TOPIC = "persistent://acme/orders/t1"
POLICIES = {
    "tenants.acme": {"resourcegroup": "rg1"},
    "namespaces.acme/orders": {"resourcegroup": "rg1", "dispatchRate": {}},
    "namespaces.acme/all": {"resourcegroup": "shared"},
    "namespaces.other/all": {"resourcegroup": "shared"},
    "namespaces.other/none": {"dispatchRate": {}},
}


def admission(name: str, mutations: int, wait_ms: int = 0, ts: int = 0, **more: Any) -> bytes:
    """As the job writes it."""
    fields = {"type": "admission", "id": name, "ts": ts, "mutations": mutations, "throttle_time_ms": wait_ms}
    return orjson.dumps(fields | more)


def record(**event: Any) -> Record:
    """An event on its topic, written at its time."""
    topic = "weir.requests" if event["type"] in ("request", "refund") else "weir.usage"
    return Record(topic, 0, 0, event.get("ts", 0), orjson.dumps({"id": "x", "ts": 0} | event))


def request(name: str, user: str, mutations: int = 1) -> Record:
    """A request for partitions."""
    items = [{"name": "t", "mutations": mutations}]
    return record(type="request", id=name, user=user, items=items, subject="")


def rows(bill: Bill) -> dict[str, dict[str, Any]]:
    """By tenant."""
    return {row["tenant"]: row for row in orjson.loads("".join(lines(bill.rows(), "json")))}


@pytest.fixture(name="bill")
def bill_without_policies() -> Bill:
    """Of a cluster without policies."""
    return Bill({})


def test_partitions_are_those_admitted_less_those_given_back(bill: Bill) -> None:
    """By user, whatever quota applied; a decision counts once, however often it stands in the log.

    That of a proxy's probe, for which nobody waits, counts never.
    """
    for decision in (
        admission("a", 5), admission("a", 5), admission("a", 5, repeat=True),
        admission("b", 0, 4000, 1000), admission("c", 0, 4000, 3000), admission("d", 7),
        admission("e", 100, candidate="tighter"), b'{"type":"share"}', b'not JSON, but "admission"',
        b'{"type":"admission","id":"d"}', admission("undecided", 1) + b"}", b'["admission"]',
        admission("p1-9-probe", 0, 4000, 9000),
    ):  # fmt: skip
        bill.take_decision(decision)
    for event in (
        request("a", "alice", 5), request("b", "alice"), request("c", "alice"), request("d", "b,b"),
        request("e", "alice"), request("undecided", "alice"), request("a", "alice", 5),
        request("p1-9-probe", "alice", 0),
        record(type="refund", of="a", user="alice", subject="", items=[{"name": "t", "mutations": 2}]),
    ):  # fmt: skip
        bill.take(event)
    found = rows(bill)
    assert found["user=alice"]["partitions"] == 3
    # From 1 s to 5 s and from 3 s to 7 s.
    assert found["user=alice"]["throttled_ms"] == 6000
    assert found["user=b%2Cb"]["partitions"] == 7


def test_waits_of_several_subjects_come_in_no_order(bill: Bill) -> None:
    """Their partitions are read one after the other: an earlier wait of the second was taken for told."""
    bill.take_decision(admission("a", 0, 10_000, 1_000))
    bill.take_decision(admission("b", 0, 500))
    for name in "ab":
        subject = f"user=alice,client-id={name}"
        items = [{"name": "t", "mutations": 1}]
        bill.take(record(type="request", id=name, user="alice", items=items, subject=subject))
    assert rows(bill)["user=alice"]["throttled_ms"] == 10_500


def test_a_shadow_entry_has_nobody_wait() -> None:
    """What it would have told counted as waited; what it charges counts."""
    bill = Bill({})
    bill.take_decision(admission("a", 5, 69_000, shadow=True))
    bill.take_decision(admission("b", 0, 500, shadow=False))
    for name in "ab":
        bill.take(request(name, "alice", 5))
    assert [(row["partitions"], row["throttled_ms"]) for row in rows(bill).values()] == [(5, 500)]


def refund(mutations: int) -> Record:
    """What alice gives back."""
    items = [{"name": "t", "mutations": mutations}]
    return record(type="refund", of="a", user="alice", subject="", items=items)


def test_what_the_job_buries_costs_and_returns_nothing(bill: Bill) -> None:
    """Who may write reports lowered a bill by refunds there, and reports of a wrong clock raised one."""
    bill.take_decision(admission("a", 5))
    bill.take(request("a", "alice", 5))
    bill.take(refund(5)._replace(topic="weir.usage"))
    bill.take(usage(quota_alice={"publishedBytes": 10})._replace(topic="weir.requests"))
    of_alice = {"quota/user=alice": {"publishedBytes": 10}}
    ahead = record(type="group_usage", broker="b1", period_ms=1000, usage=of_alice, ts=60_001)
    bill.take(ahead._replace(ts=0))
    assert [(row["partitions"], row["bytes_in"]) for row in rows(bill).values()] == [(5, 0)]
    assert bill.bad == 3


class Log:
    """A reader of a cluster's topics, in which each stands once and its last record was sent again."""

    def __init__(self, *_: Any) -> None:
        self.read = lambda span, types=(): iter([Record("", 0, 0, 0, admission("a", 5))])

    def spans(self, topic: str, *_: Any) -> list[str]:
        """One."""
        return [topic]

    def messages(self, topic: str) -> Iterator[Any]:
        """What was written to it."""
        events = [request("a", "alice", 5), refund(2)] if topic == "weir.requests" else [REPORT]
        given = stamps(b"producer")
        written = [(given(), event) for event in events]
        for offset, (stamp, event) in enumerate([*written, written[-1]]):
            sent = Message(event.value, ts=0, partition=0, offset=offset)
            yield SimpleNamespace(
                topic=lambda: topic, partition=sent.partition, offset=sent.offset, value=sent.value,
                timestamp=sent.timestamp, headers=lambda stamp=stamp: [(SENT_HEADER, stamp)],
            )  # fmt: skip

    def close(self) -> None:
        """Nothing is open."""


def test_what_was_sent_twice_is_billed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all brokers fell; the job leaves it out."""
    monkeypatch.setattr(adding, "TopicReader", Log)
    monkeypatch.setattr(adding, "read_policies", lambda cluster: SimpleNamespace(entries={}))
    (row,) = rows(bill(Cluster("h:1"), 0, 1)).values()
    assert (row["tenant"], row["partitions"], row["bytes_in"]) == ("user=alice", 3, 10)


def usage(**groups: dict[str, Any]) -> Record:
    """A broker's report; `quota_` before a name stands for `quota/`."""
    named = {name.replace("quota_", "quota/user="): report for name, report in groups.items()}
    return record(type="group_usage", broker="b1", period_ms=1000, usage=named)


REPORT = usage(quota_alice={"publishedBytes": 10})


def test_bytes_are_those_of_users_and_of_groups() -> None:
    """A group is its tenant's, or its own if several have it, in whatever mode."""
    bill = Bill({**POLICIES, "mode": "track"})
    report = {"publishedBytes": 10, "dispatchedBytes": 3, "throttledMs": {"publishRateInBytes": 9}}
    waits = {"throttledMs": {"publishRateInMsgs": 4, "publishRateInBytes": 5}}
    bill.take(usage(rg1=report, shared=report, quota_alice=report))
    bill.take(usage(rg1=report | waits, quota_alice=report | {"throttledMs": {}}))
    inside = {"dispatch/persistent://acme/orders/t1": report, "inflight/http": report}
    bill.take(record(type="group_usage", broker="b1", period_ms=1, usage=inside))
    found = {
        name: (row["bytes_in"], row["bytes_out"], row["throttled_ms"]) for name, row in rows(bill).items()
    }
    assert found == {"acme": (20, 6, 14), "resourcegroup=shared": (10, 3, 9), "user=alice": (20, 6, 9)}


def test_rounds_that_are_left_out_count_as_the_last_one(bill: Bill) -> None:
    """Of steady use a proxy tells each third round; but not where somebody was silent, or away."""
    for second, size in ((1, 10), (4, 11), (5, 0), (8, 10), (12, 10)):
        both = {"quota/user=alice": {"publishedBytes": size, "dispatchedBytes": 2 * size}}
        bill.take(record(type="group_usage", broker="b1", period_ms=1000, ts=second * 1000, usage=both))
    row = rows(bill)["user=alice"]
    assert (row["bytes_in"], row["bytes_out"]) == (61, 122)


def test_a_proxy_that_was_killed_has_left_no_rounds_out(bill: Bill) -> None:
    """Started again within three rounds, it was billed for those in which it was not there."""
    old, new = "b-1-usage-7", "b-1-usage-8"
    for ts, name in ((1_000, f"{old}-1"), (4_000, f"{old}-4.2"), (7_000, f"{new}-1"), (10_000, f"{new}-4")):
        usage = {"quota/user=alice": {"publishedBytes": 1}}
        bill.take(record(type="group_usage", id=name, broker="b-1", period_ms=1_000, ts=ts, usage=usage))
    assert rows(bill)["user=alice"]["bytes_in"] == 4 + 4


def test_sums_stop_at_64_bits() -> None:
    """JSON has no larger ones."""
    (line,) = lines([Charges("a", bytes_in=3 * (2**63 - 1))], "json")
    assert orjson.loads(line)[0]["bytes_in"] == 2**63 - 1


@pytest.mark.parametrize("again", [(), (1_800_000,)], ids=["in order", "a clock goes back"])
def test_storage_is_what_topics_had_at_their_checks(again: tuple[int, ...]) -> None:
    """An hour of 300 bytes, then half an hour of 100; the last check holds for no time yet.

    Nor does one by a clock that is behind bill a stretch twice, as of a collector that takes over.
    """
    bill = Bill(POLICIES)
    for ts, size in ((0, 300), (3_600_000, 100), *((ts, 100) for ts in again), (5_400_000, 700)):
        ledgers = [{"id": 1, "entries": 1, "size": size - 50, "closeTime": 1},
                   {"id": 2, "entries": 1, "size": 50, "closeTime": None}]  # fmt: skip
        bill.take(record(type="backlog", ts=ts, topic=TOPIC, ledgers=ledgers, subscriptions=[]))
    bill.take(Record("t", 0, 0, 0, b"not JSON"))
    found = rows(bill)["acme"]
    assert (found["storage_bytes"], found["storage_byte_hours"], bill.bad) == (700, 350.0, 1)


def test_a_bill_is_a_table_or_columns(bill: Bill) -> None:
    """The table ends with the sum of all."""
    bill.take(usage(quota_alice={"publishedBytes": 1_000_000}, quota_bob={"publishedBytes": 2}))
    made = bill.rows()
    table = [line.split() for line in lines(made, "table")]
    assert table[0][:3] == ["tenant", "bytes_in", "bytes_out"]
    assert [row[:2] for row in table[1:]] == [
        ["user=alice", "1,000,000"], ["user=bob", "2"], ["all", "1,000,002"]
    ]  # fmt: skip
    read = list(csv.DictReader(lines(made, "csv")))
    assert [(row["tenant"], row["bytes_in"]) for row in read] == [
        ("user=alice", "1000000"), ("user=bob", "2")
    ]  # fmt: skip


def test_names_of_groups_forge_no_row_and_no_terminal(bill: Bill) -> None:
    """Who may write reports chooses them: a line of a CSV file was two, one of them another tenant's."""
    bill.take(usage(**{"a\u2028user=bob,9\x1b[2K": {"publishedBytes": 1}}))
    made = bill.rows()
    _, row = lines(made, "csv")
    (read,) = csv.reader([row])
    assert read[:2] == ["resourcegroup=a\\u2028user=bob,9\\x1b[2K", "1"]
    assert len(lines(made, "table")) == 3
    (told,) = lines(made, "json")
    assert told.isprintable() and orjson.loads(told)[0]["tenant"] == made[0].tenant


def test_sums_of_refunds_stop_too(bill: Bill) -> None:
    """Below what JSON has: the bill ended in a traceback."""
    for _ in range(2):
        bill.take(refund(2**63 - 1))
    assert rows(bill)["user=alice"]["partitions"] == 1 - 2**63


def test_too_long_a_stretch_is_refused(bill: Bill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the memory is full."""
    monkeypatch.setattr(adding, "IDS_MAX", 1)
    bill.take_decision(admission("a", 1))
    with pytest.raises(WeirError, match="shorter stretch"):
        bill.take_decision(admission("b", 1))


def test_what_was_admitted_after_the_stretch_makes_it_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of last week was refused for all that this week has admitted: no shorter one would do."""
    monkeypatch.setattr(adding, "IDS_MAX", 2)
    bill = Bill({}, max_ahead_ms=500, to_ms=10_000)
    bill.take_decision(admission("late", 1, ts=9_000, applied_ts=90_000))
    # A proxy whose clock is far ahead has decided it.
    bill.take_decision(admission("own", 2, ts=90_000, applied_ts=10_999))
    for number in range(3):
        bill.take_decision(admission(f"after-{number}", 4, ts=11_000 + number))
    for name in ("late", "own", "after-0"):
        bill.take(request(name, "alice"))
    assert rows(bill)["user=alice"]["partitions"] == 3
