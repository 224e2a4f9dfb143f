"""What a law costs: nanoseconds per event on one thread, its compiled part alone and the whole step."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import orjson

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.load.events import POLICIES, SEED, T0, requests
from streaming.columns.records import Records
from streaming.contract.topics import Topics
from streaming.laws.concurrency import law as concurrency
from streaming.laws.dispatch import law as dispatch
from streaming.laws.law import StepContext
from streaming.laws.mutation import law as mutation
from streaming.laws.shard import step
from streaming.laws.shares import accelerator as shares_rounds

TITLE = "Law cost: nanoseconds per event, one thread"
DURATION_S = 45
BUCKET_TARGET_NS: Final = 100.0
_EVENTS, _SMOKE_EVENTS = 50_000, 3_000
_REPEATS, _SMOKE_REPEATS = (3, 30), (1, 1)
"""Runs of each: at least and at most, as many as there is time for."""
_TIME_S: Final = 1.5
_SUBJECTS: Final = 10_000
_QUOTA: Final = POLICIES["quotas[user=<default>]"]
_TOPIC: Final = "persistent://acme/orders/t%d"
_BROKERS: Final = 10
_ROUND_MS: Final = 60_000

Maker = Callable[[int], list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One law under one load.

    Attributes:
        what: name for people.
        law: key of LAWS.
        part: its compiled function, as `streaming.laws` calls it; None: it has none.
        policies: in force from the start.
        make: count -> the values of so many events, in order of time.
    """

    what: str
    law: str
    part: Callable[..., Any] | None
    policies: dict[str, Any]
    make: Maker


def run(smoke: bool, progress: Progress) -> Result:
    """Measure every law, both algorithms of mutations and all four of concurrency limits."""
    count, repeats = (_SMOKE_EVENTS, _SMOKE_REPEATS) if smoke else (_EVENTS, _REPEATS)
    rows: list[Row] = []
    cases = _cases()
    for number, case in enumerate(cases):
        progress.step(case.what, number / len(cases))
        alone, whole = _measure(case, count, repeats)
        if alone is not None:
            aim = BUCKET_TARGET_NS if case.what.endswith("token_bucket") else None
            rows.append(
                Row(
                    what=f"{case.what}: compiled part",
                    value=alone,
                    unit="ns/event",
                    target="" if aim is None else f"< {aim:.0f}",
                    met=None if aim is None else alone < aim,
                )
            )
        rows.append(Row(what=f"{case.what}: whole step", value=whole, unit="ns/event"))
    notes = [
        f"{count:,} events a batch, the median of {repeats[0]} to {repeats[1]} runs, each from the state that"
        " a batch before it left; processor time of one thread.",
        f"Mutations: {_SUBJECTS:,} subjects in random order, one item a request. Dispatch: 1,000"
        " subscriptions. Concurrency: 1,000 partitions. Shares: 100 groups of 10 brokers. Backlog: 1,000"
        " topics of two ledgers and two subscriptions.",
        "Compiled part: machine code only, called again with the same columns. Shares are divided once a"
        " round; that is spread over the round's reports. The backlog law has no compiled part.",
        "Whole step: bytes of records to bytes of decisions, with parsing, and the shard's state read and"
        " written.",
    ]
    return Result(name="laws", title=TITLE, rows=rows, notes=notes)


def _cases() -> list[_Case]:
    quota = {"quotas[user=<default>]": {**_QUOTA, "algorithm": "sampled_rate"}}
    rate = {"namespaces.acme/orders": {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 1_000}}}
    group = {f"resourcegroups.g{number}": {"publishRateInMsgs": 1_000} for number in range(100)}
    kept = {"limitSize": 100_000, "policy": "consumer_backlog_eviction"}
    topics = {"namespaces.acme/orders": {"backlogQuotaMap": {"destination_storage": kept}}}
    walk = mutation.walk
    limits = [
        _Case(
            what=f"concurrency {algorithm}",
            law="concurrency",
            part=concurrency.walk,
            policies={"backpressure.partitions.*": {"algorithm": algorithm, "useWindowed": False}},
            make=_latencies,
        )
        for algorithm in ("aimd", "vegas", "gradient", "gradient2")
    ]
    return [
        _Case(what="mutation token_bucket", law="mutation", part=walk, policies=POLICIES, make=_requests),
        _Case(what="mutation sampled_rate", law="mutation", part=walk, policies=quota, make=_requests),
        _Case(what="shares", law="shares", part=shares_rounds.share_all, policies=group, make=_reports),
        _Case(what="dispatch", law="dispatch", part=dispatch.walk, policies=rate, make=_deliveries),
        *limits,
        _Case(what="backlog", law="backlog", part=None, policies=topics, make=_backlogs),
    ]


def _measure(case: _Case, count: int, repeats: tuple[int, int]) -> tuple[float | None, float]:
    """ns per event of the compiled part and of the whole step."""
    context = StepContext(initial=case.policies, processed_ts=T0, fail_fast=True)
    values = case.make(2 * count)
    # The first half fills the table and compiles what is not compiled yet.
    body, _ = step(case.law, 0, None, _records(case.law, values[:count]), context)
    values = values[count:]
    calls: list[tuple[Any, ...]] = []
    with _listening(case.part, calls):
        step(case.law, 0, body, _records(case.law, values), context)

    def whole() -> int:
        records = _records(case.law, values)
        begun = time.process_time_ns()
        step(case.law, 0, body, records, context)
        return time.process_time_ns() - begun

    alone = None if case.part is None else _alone(case.part, calls, repeats) / count
    return alone, _median(whole, repeats) / count


def _median(measure: Callable[[], int], repeats: tuple[int, int]) -> float:
    times: list[int] = []
    deadline = time.monotonic() + _TIME_S
    least, most = repeats
    while len(times) < least or (len(times) < most and time.monotonic() < deadline):
        times.append(measure())
    return median(times)


def _records(law: str, values: list[bytes]) -> Records:
    topics = Topics()
    topic = topics.requests if law == "mutation" else topics.usage
    count = len(values)
    return Records(
        topic=[topic] * count,
        partition=[0] * count,
        offset=list(range(count)),
        # Half an hour of events is written at once: as lines of a file they may lie anywhere.
        ts=[None] * count,
        value=values,
        broadcast=[False] * count,
    )


@contextmanager
def _listening(part: Callable[..., Any] | None, calls: list[tuple[Any, ...]]) -> Iterator[None]:
    """Note what the laws call `part` with, wherever they have imported it."""

    def noted(*args: Any) -> Any:
        assert part is not None
        calls.append(_copied(args))
        return part(*args)

    routes = [
        (module, name)
        for key, module in list(sys.modules.items())
        if key.startswith("streaming.laws")
        for name, value in vars(module).items()
        if part is not None and value is part
    ]
    for module, name in routes:
        setattr(module, name, noted)
    try:
        yield
    finally:
        for module, name in routes:
            setattr(module, name, part)


def _alone(part: Callable[..., Any], calls: list[tuple[Any, ...]], repeats: tuple[int, int]) -> float:
    """ns of all calls together; each repetition begins with the arguments as they were."""
    if not calls:
        raise RuntimeError("the law did not call its compiled part")

    def once() -> int:
        fresh = [_copied(args) for args in calls]
        begun = time.process_time_ns()
        for args in fresh:
            part(*args)
        return time.process_time_ns() - begun

    return _median(once, repeats)


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_copy(arg) for arg in args)


def _copy(arg: Any) -> Any:
    """An argument that the law may write into without harm: arrays, alone or as fields of a named tuple."""
    if isinstance(arg, np.ndarray):
        return arg.copy()
    if isinstance(arg, tuple):
        return type(arg)(*map(_copy, arg)) if hasattr(arg, "_fields") else _copied(arg)
    return arg


def _requests(count: int) -> list[bytes]:
    return [value for _, value in requests(count, _SUBJECTS, ts=True)]


def _reports(count: int) -> list[bytes]:
    """Each round every broker reports each group once."""
    routes = 100 * _BROKERS
    return [
        orjson.dumps(
            {
                "type": "group_usage",
                "id": f"s{number}",
                "ts": T0 + number // routes * _ROUND_MS,
                "broker": f"b{number % _BROKERS}",
                "period_ms": _ROUND_MS,
                "usage": {f"g{number // _BROKERS % 100}": {"publishedMsg": 6_000 * (number % 13)}},
            }
        )
        for number in range(count)
    ]


def _deliveries(count: int) -> list[bytes]:
    draw = np.random.default_rng(SEED).integers(0, 1_000, count).tolist()
    return [
        orjson.dumps(
            {
                "type": "dispatch_usage",
                "id": f"d{number}",
                "ts": T0 + number // 10,
                "broker": "b1",
                "topic": _TOPIC % (place // 10),
                "subscription": f"s{place}",
                "msgs": 10,
                "bytes": 1_000,
                "entries": 10,
                "backlog": True,
            }
        )
        for number, place in enumerate(draw)
    ]


def _latencies(count: int) -> list[bytes]:
    draw = np.random.default_rng(SEED)
    routes, rtt = draw.integers(0, 1_000, count).tolist(), draw.lognormal(16.0, 0.5, count).tolist()
    return [
        orjson.dumps(
            {
                "type": "latency",
                "id": f"l{number}",
                "ts": T0 + number // 10,
                "partition": f"orders-{place}",
                "rtt_ns": int(time_ns),
                "inflight": 20,
            }
        )
        for number, (place, time_ns) in enumerate(zip(routes, rtt, strict=True))
    ]


def _backlogs(count: int) -> list[bytes]:
    return [
        orjson.dumps(
            {
                "type": "backlog",
                "id": f"k{number}",
                "ts": T0 + number,
                "broker": "b1",
                "topic": _TOPIC % (number % 1_000),
                "ledgers": [
                    {"id": 1, "entries": 100, "size": 103_600, "closeTime": T0},
                    {"id": 2, "entries": 3, "size": 300, "closeTime": None},
                ],
                "subscriptions": [
                    {"name": "slow", "ledger": 1, "entry": -1, "durable": True, "oldestPublishTime": T0},
                    {"name": "fast", "ledger": 2, "entry": 1, "durable": True, "oldestPublishTime": T0},
                ],
            }
        )
        for number in range(count)
    ]
