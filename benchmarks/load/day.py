"""A made-up day of a cluster, for plans: the same seed gives the same bytes.

    PYTHONPATH=. .venv/bin/python -m benchmarks.load.day FOLDER [--seed N] [--tenants N] [--day N] [--calm]

Writes `day.jsonl.gz`, all laws' events of one day, and two files of policies: `today.yaml`, as loose as what
nobody ever looked at, and `tomorrow.yaml`, which is to hold the runaway and leave those alone who behave:

- `terraform` works at two in the night, `ci` by day, most at noon, and small teams whenever they like;
- `etl` runs away from 13:10 to 15:40: it creates topics as fast as it can;
- `reports` is slow: a few large requests a day, a subscription that reads in lumps and falls behind;
- `shop` grows: what it asks for and what it sends rises all day.

A later day (`--day 2`) is other traffic of the same principals, and `shop` grows on from where it was; on a
calm one (`--calm`) nobody runs away.
"""

import argparse
import gzip
from collections.abc import Iterator
from itertools import count
from math import cos, pi
from pathlib import Path
from typing import Any, Final

import orjson

from weir.simulate.draws import Draws

MIDNIGHT_MS: Final = 1_795_132_800_000
"""2026-11-20T00:00:00Z."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
RUNAWAY_MS: Final = (13 * HOUR_MS + 10 * 60_000, 15 * HOUR_MS + 40 * 60_000)
TENANTS: Final = 20
"""Small teams, unless told otherwise."""
PROXIES: Final = ("p1", "p2", "p3")
TOPICS: Final = (
    "persistent://shop/orders/new", "persistent://shop/clicks/all", "persistent://bi/reports/all",
)  # fmt: skip
Event = dict[str, Any]
TODAY: Final = """\
version: 1
quotas:
  - {entity: {user: null}, controller_mutation_rate: 5, producer_byte_rate: 4000000}
  - {entity: {user: shop}, controller_mutation_rate: 0.04, producer_byte_rate: 9000000}
namespaces:
  shop/orders: {subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 1500}}
  bi/reports: {subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 2000}}
backpressure: {partitions: {"*": {algorithm: aimd}}}
"""
TOMORROW: Final = """\
version: 1
quotas:
  - {entity: {user: null}, controller_mutation_rate: 0.5, controller_mutation_burst: 300,
     producer_byte_rate: 4000000}
  - {entity: {user: shop}, controller_mutation_rate: 0.2, controller_mutation_burst: 300,
     producer_byte_rate: 14000000}
namespaces:
  shop/orders: {subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 1500}}
  bi/reports:
    subscriptionDispatchRate: {dispatchThrottlingRateInMsg: 1200}
    backlogQuotaMap: {destination_storage: {limitSize: 4000000000, policy: producer_request_hold}}
backpressure: {partitions: {"*": {algorithm: aimd}}}
"""


def by_day(at_ms: float) -> float:
    """How busy people are, 0 at midnight and 1 at noon."""
    return (1.0 - cos(2.0 * pi * at_ms / DAY_MS)) / 2.0


class Day:
    """All events of a day.

    Args:
        seed: of all that is random.
        tenants: small teams.
        day: which one, from 1.
        calm: nobody runs away.
    """

    def __init__(self, seed: int, tenants: int = TENANTS, day: int = 1, *, calm: bool = False) -> None:
        self._seed, self._tenants, self._calm = seed, tenants, calm
        self._later_ms = (day - 1) * DAY_MS
        self._streams = count(day - 1 << 32)

    def events(self) -> list[Event]:
        """In order of time."""
        made = [*self._asked(), *self._used(), *self._delivered(), *self._measured(), *self._stored()]
        made.sort(key=lambda event: event["ts"])
        return [
            {**event, "ts": event["ts"] + self._later_ms, "id": f"e{number}"}
            for number, event in enumerate(made, 1)
        ]

    def _times(
        self, every_ms: float, start_ms: float = 0, end_ms: float = DAY_MS
    ) -> Iterator[tuple[int, float]]:
        """Times of day, so far apart on average, each with a draw from [0, 1)."""
        gaps, draws = (Draws(self._seed, next(self._streams)) for _ in range(2))
        at = start_ms
        for number in count():
            at += every_ms * gaps.exponential(number)
            if at >= end_ms:
                return
            yield int(at), draws.uniform(number)

    def _grown(self, at: int) -> float:
        """For how long `shop` has grown, days."""
        return (at + self._later_ms) / DAY_MS

    def _asked(self) -> Iterator[Event]:
        for at, draw in self._times(40_000):
            if draw < by_day(at):
                yield _request(at, "ci", "ci-runner", 1 + int(draw * 6))
        for at, draw in self._times(2500, 2 * HOUR_MS, 2 * HOUR_MS + 300_000):
            yield _request(at, "terraform", "terraform", 1 + int(draw * 4))
        for at, draw in self._times(400, *RUNAWAY_MS):
            if self._calm:
                break
            yield _request(at, "etl", "etl-retry", 1 + int(draw * 3))
        for at, _ in self._times(2.5 * HOUR_MS):
            yield _request(at, "reports", "airflow", 120)
        for at, draw in self._times(15_000):
            if draw < 0.1 + 0.7 * self._grown(at):
                yield _request(at, "shop", "shop-api", 1 + int(draw * 4))
        for team in range(self._tenants):
            for at, draw in self._times(900_000):
                yield _request(at, f"team-{team:02}", "admin", 1 + int(draw * 12), strict=team % 5 > 0)

    def _used(self) -> Iterator[Event]:
        """What the proxies' users have sent each minute: shop more and more, the others by day."""
        draws = Draws(self._seed, next(self._streams))
        for minute in range(1, DAY_MS // 60_000 + 1):
            at = minute * 60_000 - 1000
            for number, proxy in enumerate(PROXIES):
                part = (0.5, 0.3, 0.2)[number] * (0.8 + 0.4 * draws.uniform(3 * minute + number))
                rates = {
                    "shop": (2 + 11 * self._grown(at)) * 1e6, "ci": 1.5e6 * by_day(at), "reports": 1e6,
                }  # fmt: skip
                usage = {f"quota/user={user}": _sent(rate * part) for user, rate in rates.items()}
                yield {"type": "group_usage", "ts": MIDNIGHT_MS + at + number, "broker": proxy,
                       "period_ms": 60_000, "usage": usage}  # fmt: skip

    def _delivered(self) -> Iterator[Event]:
        for at, draw in self._times(4000):
            yield _delivery(at, TOPICS[0], "billing", int((600 + 2600 * by_day(at)) * draw))
        for at, draw in self._times(4000):
            yield _delivery(at, TOPICS[1], "board", int(3000 * by_day(at) * draw))
        for at, draw in self._times(20_000):
            yield _delivery(at, TOPICS[2], "warehouse", int(6000 + 12_000 * draw))

    def _measured(self) -> Iterator[Event]:
        """Round trips at one broker, slow while the runaway keeps the controller busy."""
        for at, draw in self._times(3000):
            slow = 12 if RUNAWAY_MS[0] <= at < RUNAWAY_MS[1] and not self._calm else 1
            rtt_ns = int((4 + 12 * draw) * slow * 1e6)
            yield {"type": "latency", "ts": MIDNIGHT_MS + at, "partition": "broker-1", "rtt_ns": rtt_ns,
                   "inflight": 4 + int(30 * by_day(at) * (0.5 + draw) * slow / 3)}  # fmt: skip

    def _stored(self) -> Iterator[Event]:
        """The reports' topic every five minutes: its reader falls behind by day and catches up at night."""
        for number in range(DAY_MS // 300_000):
            at = number * 300_000
            size = int(6e9 * by_day(at) ** 2)
            log = [{"id": 1, "entries": 1 + size // 1000, "size": size, "closeTime": None}]
            behind = {"name": "warehouse", "ledger": 1, "entry": -1, "durable": True,
                      "oldestPublishTime": MIDNIGHT_MS + self._later_ms + at - 60_000}  # fmt: skip
            yield {"type": "backlog", "ts": MIDNIGHT_MS + at, "broker": "broker-1", "topic": TOPICS[2],
                   "ledgers": log, "subscriptions": [behind]}  # fmt: skip


def _request(at: int, user: str, client: str, partitions: int, *, strict: bool = True) -> Event:
    items = [{"name": f"{user}-{at}", "mutations": partitions}]
    return {"type": "request", "ts": MIDNIGHT_MS + at, "proxy": "p1", "user": user, "client_id": client,
            "api": "CreateTopics", "strict": strict, "items": items}  # fmt: skip


def _sent(rate: float) -> Event:
    return {"publishedMsg": int(rate * 60 / 500), "publishedBytes": int(rate * 60)}


def _delivery(at: int, topic: str, group: str, msgs: int) -> Event:
    return {"type": "dispatch_usage", "ts": MIDNIGHT_MS + at, "broker": "broker-1", "topic": topic,
            "subscription": group, "msgs": msgs, "bytes": 500 * msgs, "entries": 1 + msgs // 100,
            "backlog": True}  # fmt: skip


def write(folder: Path, seed: int, tenants: int = TENANTS, day: int = 1, *, calm: bool = False) -> None:
    """Write the three files; see Day."""
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(folder / "day.jsonl.gz", "wb", mtime=0) as file:
        file.writelines(orjson.dumps(event) + b"\n" for event in Day(seed, tenants, day, calm=calm).events())
    (folder / "today.yaml").write_text(TODAY)
    (folder / "tomorrow.yaml").write_text(TOMORROW)


def main() -> None:
    """As the first lines say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=TENANTS)
    parser.add_argument("--day", type=int, default=1)
    parser.add_argument("--calm", action="store_true")
    given = parser.parse_args()
    write(given.folder, given.seed, given.tenants, given.day, calm=given.calm)


if __name__ == "__main__":
    main()
