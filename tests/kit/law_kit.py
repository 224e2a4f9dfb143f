"""What the tests of laws share: requests and policies, records made and a shard stepped by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from streaming.columns.outputs import Outputs
from streaming.columns.records import Records
from streaming.contract.decisions import DECISIONS
from streaming.laws.law import StepContext
from streaming.laws.shard import step
from streaming.log.deciding import Replay

T0 = 1_795_166_700_000

Event = dict[str, Any]


def request(name: str, at_ms: int, *mutations: int, user: str = "alice", **fields: Any) -> Event:
    """A request `at_ms` after T0 with one item a number of mutations."""
    items = [{"name": f"{name}-{number}", "mutations": count} for number, count in enumerate(mutations)]
    return {
        "type": "request", "id": name, "ts": T0 + at_ms, "proxy": "p1", "user": user, "items": items,
    } | fields  # fmt: skip


def refund(at_ms: int, of_ms: int, mutations: int, user: str = "alice", name: str = "r") -> Event:
    """A refund `at_ms` after T0 of something charged `of_ms` after T0."""
    items = [{"name": "x", "mutations": mutations}]
    return {
        "type": "refund", "id": name, "ts": T0 + at_ms, "of": "x", "of_ts": T0 + of_ms, "user": user,
        "items": items,
    }  # fmt: skip


def policy(at_ms: int, path: str, value: Any) -> Event:
    """A change of policy in force from `at_ms` after T0."""
    return {"type": "policy", "id": f"policy-{at_ms}", "ts": T0 + at_ms, "path": path, "value": value}


def quota(rate: float, burst: float | None = None, **fields: Any) -> dict[str, Any]:
    """The value of a quota entry."""
    value = {"controller_mutation_rate": rate} | fields
    return value if burst is None else value | {"controller_mutation_burst": burst}


def records_of(
    events: Sequence[Event], first: int = 0, times: Sequence[int] = (), partitions: Sequence[int] = (),
    broadcast: Sequence[bool] | None = None,
) -> Records:  # fmt: skip
    """Events as records from offset `first`, of one partition and at no time (ms) unless these are given."""
    count = len(events)
    return Records(
        topic=["weir.requests"] * count, partition=partitions or [0] * count,
        offset=[*range(first, first + count)], ts=times or [None] * count,
        value=[orjson.dumps(event) for event in events], broadcast=broadcast,
    )  # fmt: skip


class Shard:
    """One shard stepped batch by batch.

    Args:
        initial: policies in force from the start.
        law: whose.
        replay: whether subjects are resolved by policy (True) or trusted (False).
        context: what else a step needs to know.

    Attributes:
        withheld: decisions that were not written, so far.
    """

    def __init__(
        self, initial: dict[str, Any], *, law: str = "mutation", replay: bool = True, fail_fast: bool = True,
        **context: Any,
    ) -> None:  # fmt: skip
        self.law = law
        self.context = StepContext(initial=initial, replay=replay, fail_fast=fail_fast, **context)
        self.body: bytes | None = None
        self.offset = self.withheld = 0
        self.dead_letters: list[dict[str, Any]] = []

    def step(
        self, events: Sequence[Event], processed_ts: int | None = None, times: Sequence[int] = (),
        partitions: Sequence[int] = (),
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Step one batch; the decisions in the order written. Records with times are one shard's of many."""
        context = self.context if processed_ts is None else replace(self.context, processed_ts=processed_ts)
        broadcast = [event["type"] in ("policy", "tick") for event in events] if times else None
        records = records_of(events, self.offset, times, partitions, broadcast)
        self.body, outputs = step(self.law, 0, self.body, records, context)
        self.offset += len(events)
        self.withheld += outputs.withheld
        decoded = list(zip(outputs.listed("sink"), map(orjson.loads, outputs.value), strict=True))
        self.dead_letters += [value for sink, value in decoded if sink != DECISIONS]
        return [value for sink, value in decoded if sink == DECISIONS]


def decide(initial: dict[str, Any], *events: Event) -> dict[str, dict[str, Any]]:
    """Decisions by id of events in one batch, as a replay makes them."""
    return {decision["id"]: decision for decision in Shard(initial).step(events)}


def replay_all(records: Records, context: StepContext) -> Outputs:
    """Decide a whole log at once, every law in one shard."""
    replay, outputs = Replay(context), Outputs()
    for _, batch, decided in replay.decide(replay.read(records, outputs), last=True):
        if batch is not None:
            outputs.add(decided)
    return outputs
