"""Reports of backlogs, cut down to what the admin API shows of them (docs/contract.md 3.5).

It happens where records are read, so that long lists of ledgers neither hold up requests nor stay in memory.
"""

from dataclasses import dataclass
from itertools import accumulate

from enforcer.core.feeds.rows import without_nulls
from streaming.contract.broker_events import backlog
from streaming.contract.fields import Fields
from streaming.laws.backlog.law import Log


@dataclass(frozen=True, slots=True)
class SubscriptionLag:
    """How far behind one subscription is.

    Attributes:
        name: unique in its topic.
        durable: whether it holds data back.
        msgs: entries that it has not acknowledged.
        size: bytes of them, whole ledgers.
        precise_size: the same with `preciseBacklogSize`.
        earliest: publish time of the oldest of them, ms since the epoch; 0: not known, or there is none.
    """

    name: str
    durable: bool
    msgs: int
    size: float
    precise_size: float
    earliest: int


@dataclass(frozen=True, slots=True)
class BacklogReport:
    """What was seen of one topic.

    Attributes:
        topic: full name.
        ts: when, ms since the epoch.
        storage: bytes of all its ledgers.
        subscriptions: as they were sent.
    """

    topic: str
    ts: int
    storage: int
    subscriptions: tuple[SubscriptionLag, ...]


def report_of(fields: Fields, name: str, ts: int) -> BacklogReport:
    """A `backlog` event named `name` of time `ts`, cut down; sizes are the law's own.

    Raises:
        BadEvent: it is none.
    """
    listed = fields.get("subscriptions")
    if type(listed) is list:
        # In the rows of a packed record a null is an absent field.
        items = [without_nulls(item) if type(item) is dict else item for item in listed]
        fields = {**fields, "subscriptions": items}
    event = backlog(fields, name, ts)
    whole, precise = (Log(event.ledgers, precise=flag) for flag in (False, True))
    counts = accumulate((ledger.entries for ledger in reversed(event.ledgers)), initial=0)
    rest = list(counts)[::-1]  # entries from each ledger on; nothing at the end
    subscriptions = []
    for each in event.subscriptions:
        place = whole.place(each)
        number, acknowledged = place
        msgs = rest[number] - acknowledged
        subscriptions.append(
            SubscriptionLag(
                name=each.name,
                durable=each.durable,
                msgs=msgs,
                size=whole.size(place),
                precise_size=precise.size(place),
                earliest=(each.oldest_publish_time or 0) if msgs else 0,
            )
        )
    storage = sum(ledger.size for ledger in event.ledgers)
    return BacklogReport(event.topic, event.ts, storage, tuple(subscriptions))
