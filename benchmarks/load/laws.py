"""What each law is measured with, alone: its policies, a maker of events, its compiled part."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import orjson

from benchmarks.load.events import POLICIES, SEED, T0, requests
from streaming.columns.compiled import machine
from streaming.contract.topics import Topics
from streaming.laws.concurrency import law as concurrency
from streaming.laws.dispatch import law as dispatch
from streaming.laws.mutation import law as mutation
from streaming.laws.shares import rounds as shares

_SUBJECTS: Final = 10_000
_TOPIC: Final = "persistent://acme/orders/t%d"
_GROUPS, _BROKERS = 100, 10
_ROUND_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LawLoad:
    """One law under one load.

    Attributes:
        about: what comes, for people.
        part: its compiled function, as `streaming.laws` calls it; None: it has none.
        policies: in force from the start, by the name of what they choose; "" where there is one choice only.
        make: count -> the values of so many events, in order of time.
        topic: where its events stand.
        targets_ns: for the compiled part, by what the policies choose.
        packed_ns: target for the whole step with packed records; None: it is not measured with them.
    """

    about: str
    part: Callable[..., Any] | None
    policies: Mapping[str, dict[str, Any]]
    make: Callable[[int], list[bytes]]
    topic: str = Topics().usage
    targets_ns: Mapping[str, float] = field(default_factory=dict)
    packed_ns: float | None = None


def _reports(count: int) -> list[bytes]:
    """Each round every broker reports each group once."""
    routes = _GROUPS * _BROKERS

    def report(number: int) -> dict[str, Any]:
        usage = {f"g{number // _BROKERS % _GROUPS}": {"publishedMsg": 6_000 * (number % 13)}}
        ts = T0 + number // routes * _ROUND_MS
        return {"ts": ts, "broker": f"b{number % _BROKERS}", "period_ms": _ROUND_MS, "usage": usage}

    return _events("group_usage", "s", map(report, range(count)))


def _deliveries(count: int) -> list[bytes]:
    draw = np.random.default_rng(SEED).integers(0, 1_000, count).tolist()
    own: dict[str, Any] = {"msgs": 10, "bytes": 1_000, "entries": 10, "backlog": True}
    return _events("dispatch_usage", "d", (
        {"ts": T0 + number // 10, "broker": "b1", "topic": _TOPIC % (each // 10), "subscription": f"s{each}",
         **own}
        for number, each in enumerate(draw)
    ))  # fmt: skip


def _latencies(count: int) -> list[bytes]:
    draw = np.random.default_rng(SEED)
    routes, rtt = draw.integers(0, 1_000, count).tolist(), draw.lognormal(16.0, 0.5, count).tolist()
    return _events("latency", "l", (
        {"ts": T0 + number // 10, "partition": f"orders-{place}", "rtt_ns": int(time_ns), "inflight": 20}
        for number, (place, time_ns) in enumerate(zip(routes, rtt, strict=True))
    ))  # fmt: skip


def _backlogs(count: int) -> list[bytes]:
    held: dict[str, Any] = {
        "ledgers": [
            {"id": 1, "entries": 100, "size": 103_600, "closeTime": T0},
            {"id": 2, "entries": 3, "size": 300, "closeTime": None},
        ],
        "subscriptions": [
            {"name": "slow", "ledger": 1, "entry": -1, "durable": True, "oldestPublishTime": T0},
            {"name": "fast", "ledger": 2, "entry": 1, "durable": True, "oldestPublishTime": T0},
        ],
    }
    return _events("backlog", "k", (
        {"ts": T0 + number, "broker": "b1", "topic": _TOPIC % (number % 1_000), **held}
        for number in range(count)
    ))  # fmt: skip


def _events(type: str, letter: str, made: Iterable[dict[str, Any]]) -> list[bytes]:
    """Events of one type; the letter begins their ids."""
    return [
        orjson.dumps({"type": type, "id": f"{letter}{number}", **event}) for number, event in enumerate(made)
    ]


_SAMPLED: Final = {path: {**quota, "algorithm": "sampled_rate"} for path, quota in POLICIES.items()}
_RATE: Final = {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 1_000}}
_BACKLOG: Final = {"limitSize": 100_000, "policy": "consumer_backlog_eviction"}

LOADS: Final[dict[str, LawLoad]] = {
    "mutation": LawLoad(
        about=f"{_SUBJECTS:,} subjects in random order, one item a request", part=machine(mutation.walk),
        policies={"token_bucket": POLICIES, "sampled_rate": _SAMPLED},
        make=lambda count: [value for _, value in requests(count, _SUBJECTS, ts=True)],
        topic=Topics().requests, targets_ns={"token_bucket": 100.0}, packed_ns=400.0,
    ),
    "shares": LawLoad(
        about=f"{_GROUPS} groups of {_BROKERS} brokers; what a round's end costs is spread over its reports",
        part=shares.walk,
        policies={"": {f"resourcegroups.g{group}": {"publishRateInMsgs": 1_000} for group in range(_GROUPS)}},
        make=_reports,
    ),
    "dispatch": LawLoad(
        about="1,000 subscriptions", part=machine(dispatch.walk),
        policies={"": {"namespaces.acme/orders": _RATE}}, make=_deliveries, packed_ns=2_000.0,
    ),
    "concurrency": LawLoad(
        about="1,000 partitions",
        part=machine(concurrency.walk),
        policies={
            algorithm: {"backpressure.partitions.*": {"algorithm": algorithm, "useWindowed": False}}
            for algorithm in ("aimd", "vegas", "gradient", "gradient2")
        },
        make=_latencies,
        packed_ns=2_000.0,
    ),
    "backlog": LawLoad(
        about="1,000 topics of two ledgers and two subscriptions, each beyond its quota",
        part=None,
        policies={"": {"namespaces.acme/orders": {"backlogQuotaMap": {"destination_storage": _BACKLOG}}}},
        make=_backlogs,
        packed_ns=100_000.0,
    ),
}  # fmt: skip
"""By the name of the law."""
