"""What clients may not name or change: taken out of requests, refused in answers, hidden in lists.

As Kafka's own authorizer does for a principal without rights, per entry and without an end of the connection
(docs/protocol_notes.md 7). Frames that cannot name anything are not read; see `protected`.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

from cachetools import TTLCache

from enforcer.core.metrics import Metrics
from enforcer.core.settings import Alter, ProxySettings
from enforcer.kafka.guard.answers import DESCRIBE_CONFIGS
from enforcer.kafka.guard.apis import APIS, FILTERED, READABLE
from enforcer.kafka.guard.protected import ALWAYS_READ, OwnTopics, unsupported
from enforcer.kafka.guard.refusals import RemovedEntry, add, name_of, take
from enforcer.kafka.guard.rules import (
    CLUSTER_AUTHORIZATION_FAILED,
    RULES,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTION_OF,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Kind,
    Rule,
    rules_of,
)
from enforcer.kafka.part import EVERYTHING, OBJECTS, Concern, Link, Part, Request
from enforcer.wire.kafka.codec import ASKED_MAX, Reader, answer, request_layout, rewritten
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    STREAMS_HEARTBEAT,
    UNSUPPORTED_VERSION,
    Fields,
    RequestHeader,
    TooManyRows,
)
from enforcer.wire.kafka.mutations import topics_of

logger = logging.getLogger(__name__)

CONSUMER_GROUP_HEARTBEAT: Final = 68
SHARE_GROUP_HEARTBEAT: Final = 76
# Of ACLs and of configurations.
_ANY_TYPE, _TOPIC, _BROKER, _TRANSACTIONAL_ID, _BROKER_LOGGER = 1, 2, 4, 5, 8
_TRANSACTION: Final = 1  # what FindCoordinator looks for
# Requests in the name of a transactional id whose answers say what became of each topic.
_PER_ENTRY: Final = TRANSACTION_OF.keys() & RULES.keys()
_PRINCIPALS_MAX: Final = 1_000
_LOG_AGAIN_MS: Final = 600_000


class Guard(Concern):
    """Looks at all that is read, for all connections; what passes unread, Requests looks at by itself."""

    keys = EVERYTHING

    def __init__(
        self, protected: OwnTopics, settings: ProxySettings, metrics: Metrics, now_ms: Callable[[], float]
    ) -> None:
        self.protected = protected
        self._settings = settings
        self._metrics = metrics
        self._admins = frozenset(settings.admins)
        # Principals that the log has spoken of.
        self._logged: TTLCache[str, None] = TTLCache(_PRINCIPALS_MAX, _LOG_AGAIN_MS, now_ms)
        # For alerts: a series that appears with 1 shows no increase.
        for counter, keys in ((metrics.refused_topics, FILTERED), (metrics.refused_changes, ALWAYS_READ)):
            for key in keys:
                counter.labels(APIS[key].name)

    def part(self, link: Link) -> Part:
        return GuardPart(link, self)

    def judge(self, request: Request, link: Link) -> bool:
        """Look at a request that may name what it must not, or is always looked at.

        Args:
            request: in a version of `apis.READABLE`.

        Returns:
            Whether it goes on, without what is refused, which is put into its answer; else it is answered.

        Raises:
            BadFrame: it cannot be read, or is too large to be judged.
        """
        frame, header, user = request.frame, request.header, request.user
        key, version = header.api_key, header.api_version
        layout = request_layout(key, version)
        try:
            body = layout.read(frame, header.body_offset, ASKED_MAX)
        except TooManyRows:
            if names_none_of(self.protected, frame, header):
                return True
            raise
        code = self._code_of_all(key, version, body)
        if code and key not in _PER_ENTRY:
            self._metrics.refused_topics.labels(APIS[key].name).inc()
            self._log(key, user)
            link.answer(request, answer(header, {"ErrorCode": code, "NodeId": -1, "Port": -1}))
            return False
        if key == FIND_COORDINATOR and body.get("KeyType") != _TRANSACTION:
            return True

        def code_of(rule: Rule, entry: Any) -> int:
            return code or self._code(key, user, rule, entry)

        taken, left = take(body, rules_of(key, version), code_of)
        if not taken and not code:
            return True
        silent = key == PRODUCE and body["Acks"] == 0
        goes_on = left or any(item.rule.forwarded for item in taken)
        if silent or not goes_on:
            self._count(key, user, taken)
        if not goes_on:
            if not silent:
                said: Fields = {}
                add(said, taken)
                link.answer(request, answer(header, said))
            return False

        def finish(response: bytes) -> bytes:
            # Not before: a later part may hold it, and then it is judged again.
            self._count(key, user, taken)
            emptied = key == METADATA and version == 0 and not left
            return rewritten(key, version, response, partial(_add, taken, emptied))

        request.frame = frame[: header.body_offset] + layout.write(body)
        # What was taken out.
        request.kept += OBJECTS * max(0, len(request.whole) - len(request.frame))
        request.amend(finish)
        return True

    def _code_of_all(self, key: int, version: int, body: Fields) -> int:
        """The error that a request is refused with as a whole, or each of its entries; else 0."""
        has = self.protected.has
        if has(body.get(TRANSACTION_OF.get(key, ""))):
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if key == FIND_COORDINATOR and version < 4:
            ours = body.get("KeyType") == _TRANSACTION and has(body["Key"])
            return TRANSACTIONAL_ID_AUTHORIZATION_FAILED if ours else 0
        if key in (CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT):
            ours = any(map(has, body["SubscribedTopicNames"] or ()))
            return TOPIC_AUTHORIZATION_FAILED if ours else 0
        if key == STREAMS_HEARTBEAT and body["Topology"] is not None:
            return TOPIC_AUTHORIZATION_FAILED if any(map(has, topics_of(body["Topology"]))) else 0
        return 0

    def _code(self, key: int, user: str, rule: Rule, entry: Any) -> int:
        """The error that one entry is refused with; 0: none."""
        protected = self.protected
        if rule.kind is Kind.QUOTAS:
            return 0 if self._may(self._settings.alter_client_quotas, user) else CLUSTER_AUTHORIZATION_FAILED
        if rule.kind is Kind.USERS:
            return 0 if self._may(self._settings.alter_cluster, user) else CLUSTER_AUTHORIZATION_FAILED
        if rule.kind is Kind.ACLS:
            ours = self._concerns(entry) and not self._may(self._settings.alter_cluster, user)
            return CLUSTER_AUTHORIZATION_FAILED if ours else 0
        if rule.kind is Kind.RESOURCES:
            kind = entry["ResourceType"]
            if kind == _TOPIC:
                return TOPIC_AUTHORIZATION_FAILED if protected.has(entry["ResourceName"]) else 0
            denied = key != DESCRIBE_CONFIGS and kind in (_BROKER, _BROKER_LOGGER)
            denied = denied and not self._may(self._settings.alter_cluster, user)
            return CLUSTER_AUTHORIZATION_FAILED if denied else 0
        ours = protected.has(name_of(rule, entry))
        if not ours and rule.name is not None:
            ours = protected.has_id(entry.get("TopicId"))
        return int(rule.kind.value) if ours else 0

    def _concerns(self, entry: Fields) -> bool:
        """Whether an ACL, or a filter of ACLs, is about Weir's topics or transactional ids by name."""
        if "ResourceType" in entry:
            kind, name = entry["ResourceType"], entry["ResourceName"]
        else:
            kind, name = entry["ResourceTypeFilter"], entry["ResourceNameFilter"]
            if kind == _ANY_TYPE:
                kind = _TOPIC
            if name is None and kind in (_TOPIC, _TRANSACTIONAL_ID):
                return self.protected.active
        return kind in (_TOPIC, _TRANSACTIONAL_ID) and self.protected.has(name)

    def _may(self, rule: Alter, user: str) -> bool:
        return rule is Alter.ALLOW or (rule is Alter.ADMINS and user in self._admins)

    def _count(self, key: int, user: str, taken: list[RemovedEntry]) -> None:
        changes = sum(item.code == CLUSTER_AUTHORIZATION_FAILED for item in taken)
        name = APIS[key].name
        if changes:
            self._metrics.refused_changes.labels(name).inc(changes)
        if changes < len(taken):
            self._metrics.refused_topics.labels(name).inc(len(taken) - changes)
        self._log(key, user)

    def _log(self, key: int, user: str) -> None:
        """Once a principal, and again after a while: whoever tries all day must not fill the log."""
        if user not in self._logged:
            self._logged[user] = None
            name = APIS[key].name
            logger.warning("%s of %r was refused, in part or whole: it is not theirs to do", name, user)


class GuardPart(Part):
    """Has the requests of one connection judged that may name what they must not."""

    def __init__(self, link: Link, guard: Guard) -> None:
        self._link, self._guard = link, guard

    def take(self, request: Request) -> bool:
        header = request.header
        if unsupported(header):
            self._link.end("unsupported_version")
            return False
        if header.api_key == API_VERSIONS:
            refusal = api_versions_refusal(header)
            if refusal is not None:
                self._link.answer(request, refusal)
            return refusal is None
        judged = self._guard.protected.must_be_judged(request.frame, header)
        return not judged or self._guard.judge(request, self._link)


def api_versions_refusal(header: RequestHeader) -> bytes | None:
    """The answer to an ApiVersions request that is newer than we read; None if it may go to the broker.

    Error 35 in the form of version 0 with the range of ApiVersions itself; the client then asks again.
    """
    lowest, highest = READABLE[API_VERSIONS]
    if lowest <= header.api_version <= highest:
        return None
    said = {"ApiKey": API_VERSIONS, "MinVersion": lowest, "MaxVersion": highest}
    values = {"ErrorCode": UNSUPPORTED_VERSION, "ApiKeys": [said]}
    return answer(header._replace(api_version=0), values)


def _add(taken: list[RemovedEntry], emptied: bool, said: Fields) -> None:
    if emptied:
        # In version 0 of Metadata an empty list asks for all topics.
        said["Topics"] = []
    add(said, taken)


def names_none_of(protected: OwnTopics, frame: bytes, header: RequestHeader) -> bool:
    """Whether a request that has too many entries to be judged surely names nothing of Weir's.

    Its names alone are read. A topic whose name only holds the prefix looks so.

    Raises:
        BadFrame: it cannot be read, or is too large for this too.
    """
    read = _reader(header.api_key, header.api_version)
    if read is None or any(frame.find(topic_id, header.body_offset) >= 0 for topic_id in protected.ids):
        return False
    return not any(map(protected.has, _texts(read(frame, header.api_version, header.body_offset))))


@cache
def _reader(key: int, version: int) -> Reader | None:
    """Reads the names of an API's topics, and its transactional id; None: it names something else."""
    rules = rules_of(key, version)
    if not rules or any(rule.kind is not Kind.TOPICS for rule in rules):
        return None
    wanted = [TRANSACTION_OF[key]] if key in TRANSACTION_OF else []
    for rule in rules:
        outer, _, inner = rule.asked.partition(".")
        names = f"{inner or outer}({rule.name}?)" if rule.name else inner or outer
        wanted.append(f"{outer}({names})" if inner else names)
    return Reader(key, "request", " ".join(wanted))


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif value is not None:
        for each in value:
            yield from _texts(each)
