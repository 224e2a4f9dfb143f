"""What the tests of dispatch rates in a proxy share: several proxies, and the job's own table beside them."""

from typing import Any

import orjson
from event_kit import Event
from usage_kit import decide

from enforcer.laws.dispatch.counter import Delivery
from enforcer.laws.dispatch.counter_table import CounterTable
from enforcer.laws.dispatch.decisions import CounterStatement, dispatch_of
from enforcer.laws.dispatch.left import Left
from streaming.laws.dispatch.law import LEVELS
from streaming.laws.dispatch.table import DispatchTable
from streaming.policy.timeline import PolicyTimeline

T0 = 1_795_166_700_000
TOPIC = "persistent://acme/orders/t1"
PLACE = (TOPIC, "sub1")
PER_SUBSCRIPTION = "dispatchThrottlingRatePerSubscriptionInMsg"


def ten_a_second(**broker: Any) -> dict[str, Any]:
    """Policies with ten messages a second for each subscription."""
    return {"broker": {PER_SUBSCRIPTION: 10} | broker}


class Job:
    """The job: its own table of counters, and a decision for each event in the order of the log.

    Args:
        timeline: the policies.
    """

    def __init__(self, timeline: PolicyTimeline) -> None:
        self.timeline = timeline
        self.table = DispatchTable()

    def decide(self, event: Event) -> CounterStatement:
        """Apply one event; its decision as a proxy reads it."""
        (said,) = self.decide_all([event])
        return said

    def decide_all(self, events: list[Event]) -> list[CounterStatement]:
        """Apply some in their order, as one batch; a decision of each."""
        decided = {one["id"]: dispatch_of(one) for one in decide(self.table, events, self.timeline)}
        return [said for event in events if (said := decided[event["id"]])]

    def acquired(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """All counters as they were after their last event."""
        values = self.table.state["acquired"].tolist()
        names = (tuple(orjson.loads(name)) for name in self.table.names.to_pylist())
        return {name: (msgs, size) for name, (msgs, size) in zip(names, values, strict=True)}

    def at(self, ts: int) -> dict[tuple[str, ...], tuple[int, int]]:
        """All counters at a time, ms: by a copy, each rolled by a delivery of nothing."""
        copy = DispatchTable.from_columns(self.table.columns())
        for name in self.acquired():
            if len(name) == len(LEVELS):
                decide(copy, [event_of("roll", ts, 0, 0, 0, True, name)], self.timeline)
        other = Job(self.timeline)
        other.table = copy
        return other.acquired()


def event_of(
    name: str, ts: int, msgs: int, size: int, entries: int, backlog: bool,
    names: tuple[str, ...], proxy: str = "p1",
) -> Event:  # fmt: skip
    """A delivery as its event."""
    broker, topic, subscription = names
    return {
        "type": "dispatch_usage", "id": name, "ts": ts, "broker": broker, "topic": topic,
        "subscription": subscription, "msgs": msgs, "bytes": size, "entries": entries, "backlog": backlog,
        "proxy": proxy,
    }  # fmt: skip


class Proxy:
    """One proxy's table, with the numbers of its events.

    Args:
        name: in events.
        timeline: the policies.
        bounds: of the table.
    """

    def __init__(self, name: str, timeline: PolicyTimeline, **bounds: int) -> None:
        self.name = name
        self.timeline = timeline
        self.table = CounterTable(timeline, **{"counters_max": 1_000, "tail_max": 1_000} | bounds)
        self.seq = 0

    def left(self, now: int, broker: str = "b1", place: tuple[str, str] = PLACE) -> Left:
        """What it may deliver."""
        return self.table.left(self.table.moment(broker, now), *place)

    def deliver(
        self, now: int, msgs: int, size: int = 0, entries: int = 1, *, backlog: bool = True,
        broker: str = "b1", place: tuple[str, str] = PLACE,
    ) -> Event | None:  # fmt: skip
        """Deliver something; its event, if it is to be reported."""
        self.seq += 1
        delivery = Delivery(self.seq, 0, msgs, size, entries, backlog, place)
        ts = self.table.deliver(self.table.moment(broker, now), delivery)
        if ts is None:
            return None
        name = f"{self.name}-{self.seq}"
        return event_of(name, ts, msgs, size, entries, backlog, (broker, *place), self.name)

    def read(self, said: CounterStatement) -> None:
        """Read a decision."""
        own = int(said.id.rpartition("-")[2]) if said.proxy == self.name else None
        self.table.state(said, own)

    def acquired(self, ts: int) -> dict[tuple[str, ...], tuple[int, int]]:
        """All counters at a time, ms."""
        found = {}
        for names, counter in self.table.counters.items():
            self.table._catch_up(counter)
            counter.roll(max(ts, counter.at), self.timeline)
            found[names] = counter.acquired[0], counter.acquired[1]
        return found
