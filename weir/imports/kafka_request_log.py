"""Kafka's request log: the logger `kafka.request.logger` at DEBUG writes a JSON object for each request.

The same in Kafka 3.9 to 4.3 (tests/kafka/test_request_log.py): `Completed request:` and the object, behind
what the logging framework's layout puts there, `[2026-11-26 10:42:11,840] DEBUG ` by Kafka's own
configuration. That time is the request's end.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import orjson
from cachetools import LRUCache

from enforcer.wire.kafka.definitions import NAMES
from enforcer.wire.kafka.frames import FETCH, METADATA, PRODUCE
from enforcer.wire.kafka.mutations import MUTATION_KEYS, STRICT_FROM
from streaming.contract.errors import BadEvent
from streaming.contract.names import QUOTA_GROUP_PREFIX, subject_of
from streaming.contract.namespaces import Namespaces
from streaming.policy.groups import QUOTA_DIMENSIONS, byte_quota_subject
from streaming.policy.policy_set import PolicySet
from streaming.policy.topics import namespace_group
from weir.imports.byte_usage import DISPATCHED, PUBLISHED, ByteUsage
from weir.imports.reading import LogLine
from weir.imports.run import Event, Source
from weir.imports.topics_known import Fields, TopicsKnown

_MARK: Final = b"Completed request:"
_KEY: Final = re.compile(rb'"requestApiKey":(\d+)')
_KEY_WITHIN: Final = 200
_TIME: Final = re.compile(
    rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{3})\d*)?[ ]?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
_BROKERS_OWN: Final = frozenset({62, 63, 70})
"""BrokerRegistration, BrokerHeartbeat, ControllerRegistration: they come to a controller's listener alone."""
_READ: Final = frozenset({PRODUCE, FETCH, METADATA}) | MUTATION_KEYS | _BROKERS_OWN
_CLIENTS_MAX: Final = 100_000
_RATES: Final = dict(zip((PUBLISHED, DISPATCHED), QUOTA_DIMENSIONS, strict=True))
_BACK: Final = timedelta(minutes=1), timedelta(minutes=90)
"""A file that goes back by so much is in the hour that a zone has twice; by more: it is several."""


class KafkaRequestLog(Source):
    """See above.

    Args:
        zone: of the times in the log, where they do not say.
        period_ms: of the reports of bytes.
        policies: name the groups that bytes are counted for; None: each user's own.
        namespaces: how names of topics are made up.
    """

    what = "requests"
    expected = "[2026-11-26 10:42:11,840] DEBUG Completed request:{...} (kafka.request.logger)"

    def __init__(
        self, zone: ZoneInfo, period_ms: int, policies: PolicySet | None, namespaces: Namespaces
    ) -> None:
        super().__init__()
        self._zone = zone
        self._policies = policies
        self._namespaces = namespaces
        self._topics = TopicsKnown()
        self._usage = ByteUsage(period_ms)
        self._controllers: set[str] = set()
        self._groups: LRUCache[tuple[str, str, int], str | None] = LRUCache(_CLIENTS_MAX)
        self._seconds: dict[str, tuple[tuple[bytes, ...], datetime, bool]] = {}
        # Lines in an hour that the zone has twice, of files that do not go back in it so far.
        self._unsure = Counter[str]()

    def is_one(self, value: bytes) -> bool:
        return _MARK in value

    def time_of(self, value: bytes, file: str) -> int | None:
        found = _TIME.search(value, 0, max(0, value.find(_MARK)))
        if found is None:
            return None
        day, clock, ms, zone = found.groups()
        key = (day, clock, zone or b"")
        known, before, _ = self._seconds.get(file, ((), None, False))
        if before is None or key != known:
            moment, unsure = datetime.fromisoformat(b"%sT%s%s".__mod__(key).decode()), False
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=self._zone)
                second = moment.replace(fold=1)
                unsure = moment.utcoffset() != second.utcoffset()
                if before is not None and _BACK[0] < before - moment.astimezone(UTC) < _BACK[1]:
                    moment, unsure = second, False
                    self._unsure.pop(file, None)
            before = moment.astimezone(UTC)
            self._seconds[file] = key, before, unsure
        return round(before.timestamp()) * 1000 + int(ms or 0)

    def events(self, line: LogLine) -> Iterator[Event]:
        value = line.value
        place = value.find(_MARK) + len(_MARK)
        key = _KEY.search(value, place, place + _KEY_WITHIN)
        if key is None:
            raise BadEvent("no requestApiKey; a request as Kafka logs it was expected")
        if int(key[1]) not in _READ:
            self.counted["of other kinds"] += 1
            return
        ended = self.time_of(value, line.file)
        if ended is None:
            raise BadEvent("no date and time in front of it; such as [2026-11-26 10:42:11,840] was expected")
        self._unsure[line.file] += self._seconds[line.file][2]
        try:
            logged: Fields = orjson.loads(value[place : value.rfind(b"}") + 1])
        except orjson.JSONDecodeError as error:
            raise BadEvent(f"not JSON: {error}; a whole JSON object was expected") from error
        yield from self._events(int(key[1]), logged, ended, line.name)

    def _events(self, key: int, logged: Fields, ended: int, name: str) -> Iterator[Event]:
        listener = logged["listener"]
        if logged["isForwarded"]:
            self._controllers.add(listener)
            self.counted["forwarded copies"] += 1
        elif key in _BROKERS_OWN or listener in self._controllers:
            self._controllers.add(listener)
            self.counted["of brokers themselves"] += 1
        elif key == METADATA:
            self._topics.described(logged["response"], ended)
            self.counted["of other kinds"] += 1
        elif key in MUTATION_KEYS:
            yield from self._mutation(key, logged, ended, name)
        else:
            yield from self._traffic(key, logged, ended)

    def _mutation(self, api: int, logged: Fields, ended: int, name: str) -> Iterator[Event]:
        request, header = logged["request"], logged["requestHeader"]
        items = []
        for change in self._topics.changes(api, request, logged["response"], ended):
            items.append({"name": change.name, "mutations": change.mutations})
            self.lacking["partitions"] += not change.known
        if not items:
            self.counted["refused by the broker"] += 1
            return
        user, client_id = _who(logged)
        self.counted["for partitions"] += 1
        yield {
            "type": "request", "id": name, "ts": ended - round(logged["totalTimeMs"]), "user": user,
            "client_id": client_id, "api": NAMES[api], "api_version": header["requestApiVersion"],
            "strict": header["requestApiVersion"] >= STRICT_FROM[api],
            "validate_only": bool(request.get("validateOnly", False)), "items": items,
        }  # fmt: skip

    def _traffic(self, key: int, logged: Fields, ended: int) -> Iterator[Event]:
        request = logged["request"]
        follower = request.get("replicaState", {}).get("replicaId", -1)
        if key == FETCH and max(request.get("replicaId", -1), follower) >= 0:
            self.counted["of brokers themselves"] += 1
            return
        self.counted["with records"] += 1
        position = PUBLISHED if key == PRODUCE else DISPATCHED
        broker = logged["connection"].partition("-")[0]
        user, client_id = _who(logged)
        size = 0
        for topic, count, kept in _produced(logged) if key == PRODUCE else _fetched(logged):
            size += count
            group = self._group_of_topic(topic) if kept and self._policies is not None else None
            if group is not None and count:
                yield from self._usage.add(broker, ended, group, position, kept)
        group = self._group_of(user, client_id, position)
        if group is not None and size:
            yield from self._usage.add(broker, ended, group, position, size)

    def _group_of(self, user: str, client_id: str, position: int) -> str | None:
        """The group of a client's byte rate; None: it has none."""
        if self._policies is None:
            return QUOTA_GROUP_PREFIX + subject_of(user, None)
        key = (user, client_id, position)
        if key not in self._groups:
            subject = byte_quota_subject(self._policies, user, client_id, _RATES[position])
            self._groups[key] = None if subject is None else QUOTA_GROUP_PREFIX + subject
        return self._groups[key]

    def _group_of_topic(self, topic: Fields) -> str | None:
        """The resource group of a topic; None: it belongs to none, or its name is not known."""
        assert self._policies is not None
        name = self._topics.name_of(topic)
        if name is None:
            self.lacking["names"] += 1
            return None
        namespace = self._namespaces.of(name)
        found = None if namespace is None else namespace_group(self._policies, namespace)
        return None if found is None else found[0]

    def rest(self) -> Iterator[Event]:
        return self._usage.rest()

    def notes(self) -> Iterator[str]:
        for count, text in (
            (self.lacking["partitions"], "topics: the log does not say how many partitions; 1 counted"),
            (self.lacking["names"], "topics by an id that no Metadata explains: no group"),
            (self._unsure.total(), f"lines in an hour that {self._zone} has twice: taken for the first one"),
            (self._usage.late, "reports for times already reported: bytes of that time are too low"),
            (self._usage.uncounted, "groups beyond what there is room for were not counted"),
        ):
            if count:
                yield f"{count:,} {text}"
        if self._policies is not None:
            yield "resource groups: bytes alone, since the log does not count records"


def _who(logged: Fields) -> tuple[str, str]:
    """User, without the type of its principal, and client id."""
    return logged["principal"].partition(":")[2], logged["requestHeader"].get("clientId") or ""


def _produced(logged: Fields) -> Iterator[tuple[Fields, int, int]]:
    """Each topic of a Produce, its bytes, and those that the broker has not refused."""
    refused = {
        (topic.get("name"), topic.get("topicId"), part["index"])
        for topic in (logged.get("response") or {}).get("responses", ())
        for part in topic["partitionResponses"]
        if part["errorCode"]
    }
    for topic in logged["request"]["topicData"]:
        parts = topic["partitionData"]
        names = (topic.get("name"), topic.get("topicId"))
        kept = sum(_size(part) for part in parts if (*names, part["index"]) not in refused)
        yield topic, sum(map(_size, parts)), kept


def _fetched(logged: Fields) -> Iterator[tuple[Fields, int, int]]:
    """Each topic that a Fetch brought something of, and its bytes, twice: nothing of it is refused."""
    for topic in logged["response"]["responses"]:
        size = sum(map(_size, topic["partitions"]))
        yield topic, size, size


def _size(part: Fields) -> int:
    size: Any = part.get("recordsSizeInBytes", 0)
    return int(size)
