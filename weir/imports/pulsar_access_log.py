"""Pulsar's log of its admin API: a line a request by Jetty's logger `org.eclipse.jetty.server.RequestLog`.

As Pulsar 4.0 writes it (tests/pulsar/test_access_log.py), behind whatever the logging framework's layout puts
there:

    127.0.0.1 - - [26/Nov/2026:10:49:03 +0000] "PUT /admin/v2/persistent/a/b/t HTTP/1.1" 204 0 "-" "curl" 248

Client, user, time of the request in whole seconds, request, status, bytes, referrer, client's name, ms taken.
It names no user, also where tokens are checked, and holds no bodies, so no numbers of partitions.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from enforcer.http.pulsar_rules import PULSAR
from enforcer.http.rules import Cost, Match, Rules, filled
from enforcer.wire.http.paths import plain
from streaming.contract.errors import BadEvent
from streaming.contract.events import ANONYMOUS
from streaming.contract.names import partitioned_topic_of
from weir.imports.reading import LogLine
from weir.imports.run import Event, Source

_HEAD: Final = re.compile(rb'\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "[A-Z]+ ')
_LINE: Final = re.compile(rb' - (\S+) \[[^\]]*\] "([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3}) ')
_METHODS: Final = frozenset(rule.method for rule in PULSAR)
_WHOLE: Final = "deletePartitionedTopic"
_SYSTEM: Final = "__"
"""Begins the names of Pulsar's own topics, which go with their namespace."""
_HELD_MS: Final = 60_000
"""So long a broker may take to delete a topic's partitions before it logs the whole."""


class PulsarAccessLog(Source):
    """See above.

    Args:
        partitions: what a request counts whose partitions the log does not tell.
    """

    what = "the admin API"
    expected = '127.0.0.1 - - [26/Nov/2026:10:49:03 +0000] "PUT /admin/v2/... HTTP/1.1" 204 0 ...'

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions
        self._rules = Rules(PULSAR)
        self._held: dict[str, list[Event]] = {}
        self._second: tuple[bytes, int] = (b"", 0)
        self._looked_ms = 0

    def is_one(self, value: bytes) -> bool:
        return _HEAD.search(value) is not None

    def time_of(self, value: bytes, file: str) -> int | None:
        found = _HEAD.search(value)
        if found is None:
            return None
        if found[1] != self._second[0]:
            moment = datetime.strptime(found[1].decode(), "%d/%b/%Y:%H:%M:%S %z")
            self._second = found[1], round(moment.timestamp()) * 1000
        return self._second[1]

    def events(self, line: LogLine) -> Iterator[Event]:
        found = _LINE.search(line.value)
        ts = self.time_of(line.value, line.file)
        if found is None or ts is None:
            raise BadEvent(f"no whole request; such as {self.expected} was expected")
        user, method, target, status = (part.decode() for part in found.groups())
        match = self._rules.find(method, plain(target)) if method in _METHODS else None
        if match is None:
            self.counted["of other kinds"] += 1
            return
        if not 200 <= int(status) < 300:
            self.counted["refused by the broker"] += 1
            return
        # Once a second of the log: very many may be held.
        if ts != self._looked_ms:
            self._looked_ms = ts
            yield from self._over(ts - _HELD_MS)
        event = {
            "type": "request", "id": line.name, "ts": ts, "user": ANONYMOUS if user == "-" else user,
            "client_id": "", "api": match.rule.operation, "api_version": 0, "strict": True,
            "validate_only": False,
        }  # fmt: skip
        yield from self._counted(event, match)

    def _counted(self, event: Event, match: Match) -> Iterator[Event]:
        """The event with its partitions, unless it is held: a partition may be deleted with its topic."""
        topic = filled(match.rule.name, match.names)
        if topic.rpartition("/")[2].startswith(_SYSTEM):
            self.counted["of brokers themselves"] += 1
            return
        mutations = match.rule.number if match.rule.cost is Cost.CONSTANT else self._partitions
        event["items"] = [{"name": topic, "mutations": mutations}]
        if event["api"] == "deleteTopic" and (whole := partitioned_topic_of(topic)) is not None:
            self._held.setdefault(whole, []).append(event)
            return
        if event["api"] == _WHOLE and topic in self._held:
            parts = self._held.pop(topic)
            event["items"][0]["mutations"] = len(parts)
            self.counted["by the broker for a whole topic"] += len(parts)
        elif match.rule.cost is not Cost.CONSTANT:
            self.lacking["partitions"] += 1
        self.counted["for partitions"] += 1
        yield event

    def _over(self, until: int) -> Iterator[Event]:
        """What was held and stands alone: partitions that were deleted before `until` (ms)."""
        for topic in [topic for topic, held in self._held.items() if held[-1]["ts"] < until]:
            for event in self._held.pop(topic):
                self.counted["for partitions"] += 1
                yield event

    def rest(self) -> Iterator[Event]:
        for held in self._held.values():
            self.counted["for partitions"] += len(held)
            yield from held

    def notes(self) -> Iterator[str]:
        if count := self.lacking["partitions"]:
            yield f"{count:,} requests: the log does not say how many partitions; {self._partitions} counted"
