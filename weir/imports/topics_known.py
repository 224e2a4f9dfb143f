"""How many partitions topics have, as far as a log of requests tells, and what requests changed of that."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from cachetools import LRUCache, TTLCache

from enforcer.wire.kafka.frames import CREATE_TOPICS, DELETE_TOPICS
from enforcer.wire.kafka.messages import RECENT_TOPIC_MS
from enforcer.wire.kafka.mutations import THROTTLING_QUOTA_EXCEEDED

Fields = Mapping[str, Any]
_TOPICS_MAX: Final = 1_000_000
"""Topics known at a time; the one used longest ago goes first."""
_NO_ID: Final = "A" * 22
"""As Kafka writes an id of zeros."""


class Change(NamedTuple):
    """What a request changed of a topic, or would have but for the broker's own quota.

    Attributes:
        name: the topic's.
        mutations: partitions created, added or deleted.
        known: False: the log does not say how many, and one is counted.
    """

    name: str
    mutations: int
    known: bool


class TopicsKnown:
    """Follows a log line by line; times are those of its lines, ms.

    A broker's metadata lags behind the changes that it has confirmed, so for a while these are believed.
    """

    def __init__(self) -> None:
        self._now_ms = 0
        self._changed: TTLCache[str, None] = TTLCache(_TOPICS_MAX, RECENT_TOPIC_MS, lambda: self._now_ms)
        self._partitions: LRUCache[str, int] = LRUCache(_TOPICS_MAX)
        self._names: LRUCache[str, str] = LRUCache(_TOPICS_MAX)

    def name_of(self, topic: Fields) -> str | None:
        """Name of a topic in a request or answer that may give its id alone; None: nobody has told it."""
        name = topic.get("name") or topic.get("topic")
        return name if name else self._names.get(topic.get("topicId", _NO_ID))

    def described(self, response: Fields, now_ms: int) -> None:
        """An answer to Metadata."""
        self._now_ms = now_ms
        for topic in response["topics"]:
            if not topic["errorCode"] and topic["name"] and topic["name"] not in self._changed:
                self._note(topic, len(topic["partitions"]))

    def changes(self, api: int, request: Fields, response: Fields, now_ms: int) -> Iterator[Change]:
        """What came of a request, topic by topic in its order; those that the broker refused are left out."""
        self._now_ms = now_ms
        lasting = not request.get("validateOnly", False)
        if api == DELETE_TOPICS:
            yield from self._deleted(request, response)
            return
        answers = {topic["name"]: topic for topic in response.get("topics", response.get("results", ()))}
        count = self._created if api == CREATE_TOPICS else self._grown
        for topic in request["topics"]:
            answer = answers.get(topic["name"])
            if answer is None or not _counts(answer):
                continue
            mutations, whole = count(topic, answer)
            if lasting and not answer["errorCode"] and whole is not None:
                self._note({"name": topic["name"], "topicId": answer.get("topicId", _NO_ID)}, whole)
                self._changed[topic["name"]] = None
            yield Change(topic["name"], max(1, mutations or 1), mutations is not None)

    def _created(self, topic: Fields, answer: Fields) -> tuple[int | None, int | None]:
        """Mutations, and partitions afterwards; None: not known."""
        told = max(answer.get("numPartitions", -1), topic["numPartitions"], len(topic["assignments"]))
        return (told, told) if told > 0 else (None, None)

    def _grown(self, topic: Fields, answer: Fields) -> tuple[int | None, int | None]:
        before, whole = self._partitions.get(topic["name"]), topic["count"]
        if topic["assignments"] is not None:
            return len(topic["assignments"]), whole
        return (whole - before if before is not None and before < whole else None), whole

    def _deleted(self, request: Fields, response: Fields) -> Iterator[Change]:
        asked = request["topics"] if "topics" in request else [{"name": n} for n in request["topicNames"]]
        ids = [topic.get("topicId", _NO_ID) for topic in asked]
        by_id = {topic.get("topicId", _NO_ID): topic for topic in response["responses"]}
        by_name = {topic["name"]: topic for topic in response["responses"]}
        for topic, topic_id in zip(asked, ids, strict=True):
            answer = by_id.get(topic_id) if topic_id != _NO_ID else by_name.get(topic["name"])
            if answer is None or not _counts(answer):
                continue
            name = self.name_of(answer) or self.name_of(topic) or topic_id
            held = self._partitions.get(name)
            if not answer["errorCode"]:
                self._partitions.pop(name, None)
                self._changed[name] = None
            yield Change(name, held or 1, held is not None)

    def _note(self, topic: Fields, partitions: int) -> None:
        self._partitions[topic["name"]] = partitions
        if topic.get("topicId", _NO_ID) != _NO_ID:
            self._names[topic["topicId"]] = topic["name"]


def _counts(answer: Fields) -> bool:
    """Whether the broker did it, or would have but for its own quota: under another limit that may pass."""
    return answer["errorCode"] in (0, THROTTLING_QUOTA_EXCEEDED)
