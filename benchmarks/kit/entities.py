"""The admin API's list over all laws at its bound: what a page takes, and what the process holds."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

import orjson

from benchmarks.kit.machine import peak_bytes
from benchmarks.kit.result import Row
from benchmarks.kit.stack import Stack
from benchmarks.load.writing import Writer
from streaming.columns.json_columns import columns_of
from streaming.columns.packed import pack
from streaming.contract.errors import WeirError

PAGE_S: Final = 0.5
MEMORY_MIB: Final = 300.0
"""Targets."""
_POLICIES: Final[dict[str, Any]] = {
    "quotas[user=<default>]": {"controller_mutation_rate": 5},
    "namespaces.acme/orders": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10},
        "backlogQuotaMap": {"destination_storage": {"limitSize": 1000, "policy": "producer_request_hold"}},
    },
}
_TOPIC: Final = "persistent://acme/orders/t"
_KINDS: Final = 3
_PACKED: Final = 1_000
_PAGES: Final = 20
_LIMIT_S: Final = 120.0
_ASK_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What was found.

    Attributes:
        entities: in the list.
        first_s, page_s, entity_s: the first page after all was read, the median of the others, one entity.
        peak: the most bytes that the process has had resident.
    """

    entities: int
    first_s: float
    page_s: float
    entity_s: float
    peak: int

    def rows(self) -> list[Row]:
        """The numbers of the table."""
        mib = self.peak / 2**20
        return [
            Row(
                f"admin API: first page of {self.entities:,} entities", self.first_s, "s",
                target=f"< {PAGE_S:g} s", met=self.first_s < PAGE_S,
            ),
            Row("admin API: a later page, median", self.page_s, "s"),
            Row("admin API: one entity", self.entity_s, "s"),
            Row(
                f"admin API: most memory, with {self.entities:,} entities", mib, "MiB",
                target=f"< {MEMORY_MIB:g} MiB", met=mib < MEMORY_MIB,
            ),
        ]  # fmt: skip


def listed(stack: Stack, entities: int) -> Listed:
    """Have a real `weir admin` read decisions on so many entities, and ask for pages.

    Raises:
        WeirError: it has not read them in time, or ended.
    """
    stack.publish(_POLICIES)
    ready = stack.start_admin()
    with Writer(stack.bootstrap) as writer:
        writer.write(stack.topics.decisions, _records(entities), packed=True)
    deadline = time.monotonic() + _LIMIT_S
    while _page(ready["admin"], "limit=1")[1] < entities:
        stack.check()
        if time.monotonic() > deadline:
            raise WeirError(f"the admin API has not read {entities} entities in {_LIMIT_S:g} s")
        time.sleep(0.5)
    # What the last look has put in order serves for half a second.
    time.sleep(1.0)
    first_s, total, rows = _page(ready["admin"], "by=used")
    pages = []
    for number in range(_PAGES):
        by = ("used", "wait", "refused")[number % 3]
        pages.append(_page(ready["admin"], f"by={by}&offset={number * entities // _PAGES}")[0])
        time.sleep(0.5)
    begun = time.monotonic()
    _ask(f"{ready['admin']}/weir/v1/entities/{rows[0]['law']}/{quote(rows[0]['entity'], safe='')}")
    found = Listed(
        entities=total, first_s=first_s, page_s=median(pages), entity_s=time.monotonic() - begun,
        peak=peak_bytes(ready["pid"]),
    )  # fmt: skip
    stack.stop("admin")
    return found


def _records(entities: int) -> Iterator[tuple[bytes, bytes]]:
    """Packed decisions of three laws in turn, of now: a tenth of them hold somebody back."""
    now = time.time_ns() // 1_000_000
    for begin in range(0, entities, _PACKED):
        chunk = range(begin, min(entities, begin + _PACKED))
        make = (_admission, _dispatch, _backlog)[begin // _PACKED % _KINDS]
        rows = columns_of([make(number, now) for number in chunk])
        kind = str(rows["type"][0])
        for value in pack(kind, rows.drop_columns("type")):
            yield b"", value


def _admission(number: int, now: int) -> dict[str, Any]:
    held = number % 10 == 0
    return {
        "type": "admission", "id": f"p{number % 3}-{number}", "ts": now, "proxy": f"p{number % 3}",
        "subject": f"user=team-{number % 97}-service-{number}", "algorithm": "token_bucket",
        "outcome": "reject" if held else "allow", "throttle_time_ms": 60_000 if held else 0,
        "rejected": ["orders"] if held else [], "tokens": -5.0 if held else float(number % 55),
        "rate": 1.0, "limit": 5.0, "mutations": number % 7, "policy_version": 1, "shadow": False,
    }  # fmt: skip


def _dispatch(number: int, now: int) -> dict[str, Any]:
    acquired = 25 if number % 10 == 0 else number % 10
    return {
        "type": "dispatch", "id": f"d{number}", "ts": now, "broker": f"broker-{number % 9}",
        "topic": f"{_TOPIC}{number}", "subscription": "billing",
        "available": {"msgs": max(0, 10 - acquired), "bytes": None},
        "throttle_time_ms": 60_000 if acquired > 10 else 0, "limited_by": None, "entries_to_read": 1,
        "acquired": {"subscription": {"msgs": acquired, "bytes": 0}}, "proxy": "p1", "ttl_ms": 1_000,
        "shadow": False,
    }  # fmt: skip


def _backlog(number: int, now: int) -> dict[str, Any]:
    return {
        "type": "backlog", "id": f"k{number}", "ts": now, "topic": f"{_TOPIC}{number}",
        "backlogSize": number % 1_100, "backlogQuotaLimitSize": 1_000, "backlogQuotaLimitTime": -1,
        "oldestBacklogMessageAgeSeconds": 9, "oldestBacklogMessageSubscriptionName": "billing",
        "exceeded": [], "actions": [], "evict": [], "ttl_ms": 60_000,
    }  # fmt: skip


def _page(url: str, query: str) -> tuple[float, int, list[dict[str, Any]]]:
    """Seconds, the number of all, and the rows of a page."""
    begun = time.monotonic()
    body, total = _ask(f"{url}/weir/v1/entities?{query}")
    return time.monotonic() - begun, int(total), body


def _ask(url: str) -> tuple[Any, str]:
    with urlopen(url, timeout=_ASK_LIMIT_S) as answer:
        return orjson.loads(answer.read()), answer.headers.get("X-Total-Count", "0")
