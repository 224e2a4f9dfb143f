"""Latency and backlog events: what is read, and what is refused with which reason."""

from typing import Any

import pytest
from event_kit import T0

from streaming.contract.broker_events import Backlog, Latency, Ledger, Sample, Subscription
from streaming.contract.errors import BadEvent
from streaming.laws.registry import LAWS

LATENCY = {"partition": "orders-3", "start_ns": 1_010_956_595, "rtt_ns": 14_148_060, "inflight": 55}
TOPIC = "persistent://acme/orders/t1"
OPEN = {"id": 2, "entries": 3, "size": 300, "closeTime": None}
SLOW = {"name": "slow", "ledger": 1, "entry": -1}


def latency(**fields: Any) -> Latency:
    """The contract's latency event with other fields; None takes one away."""
    merged = {key: value for key, value in (LATENCY | fields).items() if value is not None}
    event = LAWS.readers["latency"](merged, "l1", T0)
    assert isinstance(event, Latency)
    return event


def backlog(**fields: Any) -> Backlog:
    """A backlog event of one open ledger and one subscription with other fields."""
    merged = {"topic": TOPIC, "ledgers": [OPEN], "subscriptions": [SLOW]} | fields
    event = LAWS.readers["backlog"](merged, "k1", T0)
    assert isinstance(event, Backlog)
    return event


def test_a_latency_is_read_with_its_defaults() -> None:
    """start_ns defaults to the event's time less the round trip (docs/contract.md 3.4), did_drop to false."""
    event = latency()
    assert event.alone and event.wrong is None
    assert event.samples == (Sample(1_010_956_595, 14_148_060, 55, False),)
    starts = [sample.start_ns for given in (None, -5) for sample in latency(start_ns=given).samples if sample]
    assert starts[1] == -5
    assert starts[0] == T0 * 1_000_000 - 14_148_060
    assert (event.at, latency(applied_ts=T0 + 7).at, latency(applied_ts=T0 - 7).at) == (T0, T0 + 7, T0)


def latencies(*samples: Any) -> Latency:
    """An event of several samples."""
    event = latency(start_ns=None, rtt_ns=None, inflight=None, samples=list(samples))
    assert not event.alone
    return event


def test_samples_are_read_from_lists_and_objects() -> None:
    """Columns know no flags among integers, so 0 and 1 are flags there; without a start it is the default."""
    sample = Sample(start_ns=5, rtt_ns=7, inflight=3, did_drop=True)
    listed = latencies([5, 7, 3, True], [5, 7, 3, 1], sample._asdict())
    assert (listed.samples, listed.wrong) == ((sample,) * 3, None)
    (late,) = latencies([None, 7, 3, False]).samples
    assert late == Sample(start_ns=T0 * 1_000_000 - 7, rtt_ns=7, inflight=3, did_drop=False)
    assert latencies().samples == ()


def test_a_sample_whose_clock_went_back_is_no_loss_for_the_others() -> None:
    """Whatever else it says; the dead letter names the first one."""
    event = latencies([5, 7, 3, False], [5, -2, -3, "x"], [5, 0, 3, False])
    assert event.samples == (Sample(start_ns=5, rtt_ns=7, inflight=3, did_drop=False), None, None)
    assert event.wrong is not None
    assert event.wrong.startswith("samples[1].rtt_ns: -2, so the clock went back")


def test_a_backlog_is_read_with_its_defaults() -> None:
    """Durable unless it says otherwise; null and absent times are both unknown."""
    event = backlog()
    assert event.ledgers == (Ledger(id=2, entries=3, size=300, close_time=None),)
    assert event.subscriptions == (
        Subscription(name="slow", ledger=1, entry=-1, durable=True, oldest_publish_time=None),
    )
    assert event.broker == ""
    assert backlog(ledgers=[], subscriptions=[]).ledgers == ()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rtt_ns": 0}, "rtt_ns: 0, so the clock went back; more than 0 was expected"),
        ({"rtt_ns": -5_000_000, "inflight": -1}, "rtt_ns: -5000000, so the clock went back"),
        ({"rtt_ns": None}, "rtt_ns: missing"),
        ({"rtt_ns": 1.5}, "rtt_ns: 1.5; an integer was expected"),
        ({"rtt_ns": 2**63}, "rtt_ns: 9223372036854775808 is out of range"),
        ({"rtt_ns": True}, "rtt_ns: true; an integer was expected"),
        ({"inflight": None}, "inflight: missing"),
        ({"inflight": -1}, "inflight: -1 is out of range"),
        ({"partition": 3}, "partition: 3; text was expected"),
        ({"partition": None, "start_ns": "0"}, "partition: missing"),
        ({"did_drop": 1}, "did_drop: 1; true or false was expected"),
        ({"start_ns": "0"}, 'start_ns: "0"; an integer was expected'),
        ({"samples": 3}, "samples: 3; a list of [start_ns, rtt_ns, inflight, did_drop] was expected"),
        (
            {"samples": [[1, 2, 3]]},
            "samples[0]: [1,2,3]; [start_ns, rtt_ns, inflight, did_drop] was expected",
        ),
        ({"samples": [[1, 2, 3, 2]]}, "samples[0].did_drop: 2; true or false was expected"),
        ({"samples": [[1, 2, 3, []]]}, "samples[0].did_drop: []; true or false was expected"),
        ({"samples": [[1, 2, 3, False], [1, 2, -3, False]]}, "samples[1].inflight: -3 is out of range"),
        ({"samples": [[1, 1.5, 3, False]]}, "samples[0].rtt_ns: 1.5; an integer was expected"),
        ({"samples": [{"inflight": 3}]}, "samples[0].rtt_ns: missing"),
    ],
)
def test_a_latency_that_cannot_be_used(fields: dict[str, Any], reason: str) -> None:
    """Its dead letter says which field and why; a clock that went back comes first."""
    with pytest.raises(BadEvent) as raised:
        latency(**fields)
    assert raised.value.reason.startswith(reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "t1"}, 'topic: "t1"; a full name such as'),
        ({"topic": None}, "topic: null; text was expected"),
        ({"ledgers": None}, "ledgers: null; a list of objects was expected"),
        ({"subscriptions": {}}, "subscriptions: {}; a list of objects was expected"),
        ({"ledgers": [1]}, "ledgers[0]: 1; an object was expected"),
        ({"ledgers": [OPEN | {"size": -1}]}, "ledgers[0].size: -1 is out of range"),
        ({"ledgers": [OPEN | {"closeTime": False}]}, "ledgers[0].closeTime: false"),
        ({"ledgers": [OPEN, OPEN]}, "ledgers[1].id: 2; more than 2 was expected"),
        ({"subscriptions": [{"name": "a", "ledger": 1}]}, "subscriptions[0].entry: missing"),
        ({"subscriptions": [SLOW | {"entry": -2}]}, "subscriptions[0].entry: -2 is out of range"),
        ({"subscriptions": [SLOW | {"durable": "yes"}]}, 'subscriptions[0].durable: "yes"'),
        ({"subscriptions": [SLOW, SLOW]}, 'subscriptions[1].name: "slow" again'),
        ({"subscriptions": [SLOW | {"oldestPublishTime": 1.0}]}, "subscriptions[0].oldestPublishTime: 1.0"),
    ],
)
def test_a_backlog_that_cannot_be_used(fields: dict[str, Any], reason: str) -> None:
    """Its dead letter says which field of which item and why."""
    with pytest.raises(BadEvent) as raised:
        backlog(**fields)
    assert raised.value.reason.startswith(reason)


@pytest.mark.parametrize("missing", ["topic", "ledgers", "subscriptions"])
def test_a_backlog_needs_its_parts(missing: str) -> None:
    """Nothing is guessed about a topic that was only half reported."""
    whole = {"topic": TOPIC, "ledgers": [OPEN], "subscriptions": [SLOW]}
    del whole[missing]
    with pytest.raises(BadEvent, match=f"{missing}: missing"):
        LAWS.readers["backlog"](whole, "k1", T0)
