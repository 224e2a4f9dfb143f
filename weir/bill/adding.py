"""`weir bill`: what each tenant used in a stretch of time, added up from the log (docs/contract.md 4)."""

import contextlib
import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import orjson

from streaming.contract.broker_events import Backlog
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import MAX_AHEAD_MS, Event, Refund, Request, load_object
from streaming.contract.fields import INT64_MAX, integer, text
from streaming.contract.names import GROUP_PREFIXES, QUOTA_GROUP_PREFIX, is_probe, namespace_of, subject_of
from streaming.contract.printable import printable, printable_array
from streaming.contract.topics import Cluster, Topics
from streaming.contract.usage_events import GroupUsage
from streaming.kafka_io.policy_topic import read_policies
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import Section, parse_path
from weir.log import aligned
from weir.logs.dump_lines import IDS_MAX, DumpSummary, is_near, sent_once
from weir.logs.topic_reader import Record, TopicReader, records_of

_HOUR_MS: Final = 3_600_000
_USAGE: Final = ("group_usage", "backlog")
_LEFT_OUT_MAX: Final = 2
"""Rounds in a row in which a proxy does not tell of a group, since its use has hardly changed."""


@dataclass(slots=True)
class Charges:
    """What a tenant used.

    Attributes:
        tenant: `user=NAME` of who asks for partitions or has byte rates, else a Pulsar tenant's name, or
            `resourcegroup=NAME` of a group that several tenants have.
        bytes_in: published, as far as proxies and brokers metered it: of users and groups with a byte rate.
        bytes_out: delivered, the same.
        partitions: mutations that were admitted, less what was given back.
        storage_bytes: of all its topics at their last check.
        storage_byte_hours: each topic's size at a check, until its next one.
        throttled_ms: how long it was told to wait, waits of one subject at the same time counted once; of
            groups the time that brokers held traffic back, the longest of a report's dimensions.
    """

    tenant: str
    bytes_in: int = 0
    bytes_out: int = 0
    partitions: int = 0
    storage_bytes: int = 0
    storage_byte_hours: float = 0.0
    throttled_ms: int = 0


class Bill:
    """Adds up: all decisions first, then requests and usage in the order of the log.

    Args:
        entries: policies in force, which say whose a resource group is.
        requests: the topic of requests.
        max_ahead_ms: the job's setting of that name.
        to_ms: what came from then on, ms since the epoch, is not taken.
    """

    def __init__(
        self, entries: Mapping[str, Any], requests: str = Topics().requests, max_ahead_ms: int = MAX_AHEAD_MS,
        to_ms: int = INT64_MAX,
    ) -> None:  # fmt: skip
        self._payers, self._requests = _payers(entries), requests
        self._max_ahead_ms, self._to_ms = max_ahead_ms, to_ms
        self._charges: dict[str, Charges] = {}
        self._admitted: dict[str, tuple[int, int, int]] = {}
        self._waits: dict[str, int] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        # What brokers told last of groups in use: when, of what period, in which run.
        self._told: dict[tuple[str, str], tuple[int, int, tuple[int, ...], str]] = {}
        self.bad = 0
        """Records that could not be used, which no law has counted either."""

    def take_decision(self, value: bytes) -> None:
        """Note an admission, once; other decisions, and what is none, cost nobody anything.

        Raises:
            WeirError: they are too many to remember.
        """
        if b'"admission"' not in value:
            return
        with contextlib.suppress(BadEvent):
            said = load_object(value)
            aside = said.get("repeat") is True or CANDIDATE in said or is_probe(said)
            if said.get("type") != "admission" or aside:
                return
            name, names = text(said, "id", None), ("mutations", "throttle_time_ms", "ts")
            charged, wait_ms, ts = (integer(said, key, None) for key in names)
            if is_near(said, self._to_ms, self._max_ahead_ms):
                # By a shadow entry nobody is told to wait.
                told_ms = 0 if said.get("shadow") is True else wait_ms
                self._admitted.setdefault(name, (charged, told_ms, ts))
        if len(self._admitted) > IDS_MAX:
            raise WeirError(f"more than {IDS_MAX} admissions to remember; bill a shorter stretch of time")

    def take(self, record: Record) -> None:
        """Add a record of the requests or of the usage."""
        try:
            event = LAWS.parse(
                record.value, default_id=record.name, default_ts=record.ts, max_ahead_ms=self._max_ahead_ms
            )
            law = LAWS.by_event.get(type(event))
            if law is not None and law.on_requests is not (record.topic == self._requests):
                # Who may report may not ask, nor give back.
                raise BadEvent("on another topic than its own")
            self._add(event)
        except BadEvent:
            self.bad += 1

    def rows(self) -> list[Charges]:
        """A row a tenant, by name."""
        for topic, (_, size) in self._stored.items():
            self._of_topic(topic).storage_bytes += size
        self._stored.clear()
        return [self._charges[name] for name in sorted(self._charges)]

    def _add(self, event: Event) -> None:
        if isinstance(event, Request):
            mutations, wait_ms, at = self._admitted.pop(event.id, (0, 0, 0))
            if mutations or wait_ms:
                user = subject_of(event.user, None)
                charges = self._of(user)
                charges.partitions += mutations
                charges.throttled_ms += self._waited(event.subject or user, at, wait_ms)
        elif isinstance(event, Refund):
            self._of(subject_of(event.user, None)).partitions -= event.mutations
        elif isinstance(event, GroupUsage):
            self._add_groups(event)
        elif isinstance(event, Backlog):
            since, size = self._stored.get(event.topic, (event.ts, 0))
            # A clock that goes back has no stretch billed twice.
            until = max(since, event.ts)
            self._of_topic(event.topic).storage_byte_hours += size * (until - since) / _HOUR_MS
            self._stored[event.topic] = until, sum(ledger.size for ledger in event.ledgers)

    def _add_groups(self, event: GroupUsage) -> None:
        for group, report in event.usage:
            if group.startswith(QUOTA_GROUP_PREFIX):
                subject = group.removeprefix(QUOTA_GROUP_PREFIX)
                charges = self._of(subject.partition(",")[0])
            elif group.startswith(GROUP_PREFIXES):
                # Of the same bytes as their topics' groups, or no bytes at all.
                continue
            else:
                charges = self._of(self._payers.get(group, f"resourcegroup={group}"))
            # A proxy that was killed has left nothing out; its ids differ behind the last "-" until then.
            run = event.id.rpartition("-")[0] if event.id.startswith(event.broker) else ""
            ts, period_ms, told, before = self._told.pop((event.broker, group), (event.ts, 1, (), run))
            left_out = round((event.ts - event.period_ms - ts) / period_ms) if run == before else 0
            for counts in (report.counts, *[told] * (left_out if left_out <= _LEFT_OUT_MAX else 0)):
                charges.bytes_in += counts[1]
                charges.bytes_out += counts[3]
            if any(report.counts):
                self._told[event.broker, group] = event.ts, event.period_ms, report.counts, run
            charges.throttled_ms += max(time_ms or 0 for time_ms in report.throttled_ms)

    def _waited(self, subject: str, at: int, wait_ms: int) -> int:
        """What a wait from `at` on adds to those of its subject that are told already."""
        until = self._waits.get(subject, 0)
        self._waits[subject] = max(until, at + wait_ms)
        return max(0, at + wait_ms - max(at, until))

    def _of(self, tenant: str) -> Charges:
        return self._charges.setdefault(tenant, Charges(tenant))

    def _of_topic(self, topic: str) -> Charges:
        return self._of(namespace_of(topic).partition("/")[0])


def _payers(entries: Mapping[str, Any]) -> dict[str, str]:
    """Resource group -> the one tenant that has it."""
    tenants: dict[str, set[str]] = {}
    for path, value in entries.items():
        entry = parse_path(path)
        if entry.section in (Section.TENANTS, Section.NAMESPACES) and "resourcegroup" in value:
            tenants.setdefault(value["resourcegroup"], set()).add(entry.name.partition("/")[0])
    return {group: next(iter(names)) for group, names in tenants.items() if len(names) == 1}


def bill(cluster: Cluster, from_ms: int, to_ms: int, max_ahead_ms: int = MAX_AHEAD_MS) -> Bill:
    """Add up what came in [from_ms, to_ms) by record time, ms since the epoch; `max_ahead_ms` as of Bill.

    Raises:
        WeirError: the cluster does not answer, or the stretch is too long.
    """
    topics = cluster.topics
    adding = Bill(read_policies(cluster).entries, topics.requests, max_ahead_ms, to_ms)
    with closing(TopicReader(cluster.bootstrap, cluster.client)) as reader:
        # To the topic's end: a decision comes after its request.
        for span in reader.spans(topics.decisions, from_ms, None):
            for record in reader.read(span):
                adding.take_decision(record.value)
        for topic, types in ((topics.requests, ()), (topics.usage, _USAGE)):
            for span in reader.spans(topic, from_ms, to_ms):
                for message in sent_once(reader.messages(span), DumpSummary()):
                    for record in records_of(message, types):
                        adding.take(record)
    return adding


HEAD: Final = tuple(field.name for field in fields(Charges))


def lines(rows: Iterable[Charges], form: str) -> list[str]:
    """The rows as `json`, `csv` or, for people, a `table`."""
    values = [
        # Sums stop there, as all do: JSON has no larger ones.
        {
            name: max(-INT64_MAX, min(INT64_MAX, value)) if type(value) is int else value
            for name, value in asdict(row).items()
        }
        for row in rows
    ]
    if form == "json":
        return [printable_array(map(orjson.dumps, values))]
    for row in values:
        row["tenant"] = printable(str(row["tenant"]))
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(values)
        return text.getvalue().splitlines()
    total = {name: sum(row[name] for row in values) for name in HEAD[1:]}
    cells = [HEAD, *(_cells(row) for row in (*values, {"tenant": "all", **total}))]
    return aligned(cells)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["tenant"], *(f"{row[name]:,.0f}" for name in HEAD[1:])
