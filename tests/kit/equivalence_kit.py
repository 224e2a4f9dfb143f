"""The same requests to a Kafka with quotas of its own and to one behind Weir, and what comes of them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from cluster_kit import USERS, Cluster
from kafka.protocol.admin import client_quotas, topics
from kafka.protocol.metadata import metadata
from kafka_kit import build
from login_kit import Login
from proxy_kit import ProxyThread, until
from wire_client import WireClient

from weir.jars.folders import ROOT
from weir.stack.kafka import LocalKafka

OWN, DEFAULT, FREE = "alice", "bob", "carol"
"""Users: one with a quota of its own, one with the default, one with a quota that nobody reaches."""
MUTATIONS: Final = "controller_mutation_rate"
FREELY: Final = dict.fromkeys((MUTATIONS, "producer_byte_rate", "consumer_byte_rate"), 1_000_000_000)
ROUNDED_MS: Final = 2.0
"""What told times may differ by beside the time that passed: each side rounds to a ms."""
VERSIONS: Final = {"create": range(2, 8), "grow": range(4), "delete": range(1, 7)}
STRICT_FROM: Final = {"create": 6, "grow": 3, "delete": 5}
_APIS: Final = {
    "create": (topics.CreateTopicsRequest, topics.CreateTopicsResponse, "topics"),
    "grow": (topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, "results"),
    "delete": (topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, "responses"),
}
Entity = tuple[str | None, str | None]
"""User and client-id; None: the default user, or no client-id."""


class Told(NamedTuple):
    """An answer.

    Attributes:
        items: what was said of each topic, in order of their names.
        throttle_ms: its throttle_time_ms.
        asked, came: when it was asked for, and when it was there, s.
    """

    items: list[dict[str, Any]]
    throttle_ms: int
    asked: float
    came: float

    @property
    def errors(self) -> list[int]:
        """The error of each topic."""
        return [item["error_code"] for item in self.items]

    def owed(self, first: "Told") -> tuple[float, float]:
        """Between which two waits that lies which was owed when the first charge was made, ms.

        What was told is that, less the time that has passed; and of that only bounds are known from here.
        """
        least, most = max(0.0, self.asked - first.came), self.came - first.asked
        return self.throttle_ms + 1_000 * least, self.throttle_ms + 1_000 * most


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two.

    Attributes:
        name: which.
        sasl: where users log in.
        direct: the broker itself, where nobody is limited.
        limit: gives entities a rate, None: no longer.
    """

    name: str
    sasl: str
    direct: str
    limit: Callable[[dict[Entity, dict[str, float | None]]], None]

    @contextmanager
    def client(self, user: str, client_id: str) -> Iterator[WireClient]:
        """A connection of a user who has logged in."""
        with WireClient(self.sasl, client_id) as wire:
            login = Login(wire)
            if user in USERS.plain:
                assert login.handshake("PLAIN").error_code == 0
                said = login.tell(f"\0{user}\0{USERS.plain[user]}".encode())
            else:
                said = login.scram(f"n,,n={user},r=nonce", USERS.scram[user])
            assert said.error_code == 0
            yield wire

    def topics(self, prefix: str) -> dict[str, Any]:
        """The topics there whose names begin so."""
        with WireClient(self.direct, "look") as wire:
            wire.send(build(metadata.MetadataRequest, 12, topics=None, allow_auto_topic_creation=False))
            said = wire.receive(metadata.MetadataResponse, 12).topics
        return {topic.name: topic for topic in said if topic.name.startswith(prefix)}

    def partitions(self, prefix: str) -> dict[str, int]:
        """How many partitions each of them has."""
        return {name: len(topic.partitions) for name, topic in self.topics(prefix).items()}


def plain(kafka: LocalKafka) -> Side:
    """A Kafka that enforces by itself."""

    def limit(quotas: dict[Entity, dict[str, float | None]]) -> None:
        entries = [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name}
                    for kind, name in zip(("user", "client-id"), entity, strict=True)
                    if (kind, name) != ("client-id", None)
                ],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in rates.items()
                ],
            }
            for entity, rates in quotas.items()
        ]
        with WireClient(kafka.bootstrap) as wire:
            wire.send(build(client_quotas.AlterClientQuotasRequest, 1, entries=entries, validate_only=False))
            said = wire.receive(client_quotas.AlterClientQuotasResponse, 1)
        assert {entry.error_code for entry in said.entries} == {0}

    return Side("kafka", kafka.sasl_bootstrap, kafka.bootstrap, limit)


def behind_weir(cluster: Cluster, proxy: ProxyThread) -> Side:
    """One whose limits are Weir's."""

    def limit(quotas: dict[Entity, dict[str, float | None]]) -> None:
        for (user, client_id), rates in quotas.items():
            of_client = "" if client_id is None else f",client-id={client_id}"
            path = f"quotas[user={user or '<default>'}{of_client}]"
            value = {key: rate for key, rate in rates.items() if rate is not None} or None
            cluster.policies.put(path, value)
        until(lambda: proxy.entries.get(path) == value, what=f"{path} is {value}")

    return Side("weir", proxy.bootstrap, cluster.kafka.bootstrap, limit)


def entities(client_id: str, own: float, default: float, key: str = MUTATIONS) -> dict[Entity, Any]:
    """Quotas of a client-id of the three users (of the third: by user, which is nearer than the default)."""
    return {(OWN, client_id): {key: own}, (None, client_id): {key: default}}


def ask(client: WireClient, api: str, version: int, parts: Sequence[Any], dry: bool = False) -> Told:
    """One request for mutations; its topics in Kafka's own fields, of DeleteTopics names or ids."""
    asked = time.monotonic()
    tell(client, api, version, parts, dry)
    return hear(client, api, version, asked)


def tell(client: WireClient, api: str, version: int, parts: Sequence[Any], dry: bool = False) -> None:
    """Send it only."""
    fields: dict[str, Any] = {"topics": list(parts), "timeout_ms": 10_000}
    if api == "delete":
        rows = [{"name": None, "topic_id": one} if isinstance(one, UUID) else {"name": one} for one in parts]
        fields |= {"topics": rows, "topic_names": list(parts)}
    else:
        fields["validate_only"] = dry
    client.send(build(_APIS[api][0], version, **fields))


def hear(client: WireClient, api: str, version: int, asked: float) -> Told:
    """The answer to what was asked then."""
    _, answer, field = _APIS[api]
    said = client.receive(answer, version)
    items = [_shape(part.to_dict()) for part in getattr(said, field)]
    items.sort(key=lambda item: (str(item.get("name")), item["error_code"]))
    return Told(items, said.throttle_time_ms, asked, time.monotonic())


def _shape(item: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the cluster: ids are drawn, settings are many."""
    if "topic_id" in item:
        item["topic_id"] = str(item["topic_id"]) not in ("None", str(UUID(int=0)))
    if "configs" in item:
        item["configs"] = sorted(config["name"] for config in item["configs"] or ())
    return item


def made(side: Side, prefix: str, counts: dict[str, int]) -> dict[str, UUID]:
    """Topics that nobody is charged for: name without the prefix -> id, once the broker knows them."""
    parts = [created(prefix + name, count) for name, count in counts.items()]
    with side.client(FREE, "maker") as client:
        assert set(ask(client, "create", 7, parts).errors) <= {0}
    until(lambda: len(side.topics(prefix)) == len(counts), what=f"topics {prefix}")
    there = side.topics(prefix)
    return {name.removeprefix(prefix): one.topic_id for name, one in there.items()}


def created(name: str, count: int = 1, factor: int = 1, assigned: int = 0) -> dict[str, Any]:
    """A topic of CreateTopics."""
    replicas = [{"partition_index": index, "broker_ids": [1]} for index in range(assigned)]
    return {"name": name, "num_partitions": count, "replication_factor": factor, "assignments": replicas}


def grown(name: str, count: int, assigned: int | None = None) -> dict[str, Any]:
    """A topic of CreatePartitions."""
    replicas = None if assigned is None else [{"broker_ids": [1]}] * assigned
    return {"name": name, "count": count, "assignments": replicas}


class Step(NamedTuple):
    """One request: its topics, whether it is a dry run, whether it is sent by strict versions only."""

    parts: Sequence[Any]
    dry: bool = False
    strict: bool = False


BEFORE: Final = {
    "create": {"old": 1},
    "grow": {"old": 2, "dup": 1, "wrong": 1, "one": 1, "two": 1, "three": 1},
    "delete": {"dup": 1, "one": 1, "two": 3, "three": 1},
}
"""Topics that are there before, and their partitions."""


def steps(api: str, version: int, prefix: str, ids: dict[str, UUID]) -> list[Step]:
    """Nothing, what is bound to fail, what brings a balance of 1.1 or 2.2 below 0, and what comes then."""
    if api == "create":
        return _creations(prefix, version)
    name = prefix.__add__
    if api == "grow":
        bad = [grown(name("none"), 2), grown(name("old"), 2), grown(name("old2"), 0), grown(name("!"), 2)]
        bad += [grown(name("dup"), 2), grown(name("dup"), 3), grown(name("wrong"), 3, 1)]
        third = [grown(name("three"), 2)]
        return [
            Step([]), Step(bad), Step([grown(name("one"), 2)]), Step([grown(name("two"), 4, 3)]),
            Step(third, dry=True, strict=True), Step(third, strict=True),
            Step([grown(name("none"), 2)], strict=True),
        ]  # fmt: skip
    no_ids = [UUID(int=77), UUID(int=0)] if version >= 6 else []
    return [
        Step([]), Step([name("none"), name("!"), name("dup"), name("dup"), *no_ids]), Step([name("one")]),
        Step([ids["two"] if version >= 6 else name("two")]),
        Step([name("three")], strict=True), Step([name("none")], strict=True),
    ]  # fmt: skip


def _creations(prefix: str, version: int) -> list[Step]:
    name = prefix.__add__
    bad = [created(name("old")), created(name("!")), created("."), created(""), created(name("zero"), 0)]
    bad += [created(name("far"), 1, 5), created(name("both"), 2, 1, 1), *[created(name("dup"))] * 2]
    return [
        Step([]), Step(bad), Step([created(name("one"))]),
        # By the cluster's own number of partitions where that can be said, and by places for each.
        Step([created(name("two"), -1 if version >= 4 else 3), created(name("three"), -1, -1, 2)]),
        Step([created(name("three"))], dry=True, strict=True), Step([created(name("four"))], strict=True),
        Step([created(name("old"))], strict=True),
    ]  # fmt: skip


def play(side: Side, user: str, client_id: str, api: str, version: int, prefix: str) -> list[Told]:
    """What is said to all of it; after a throttle on another connection, since that one is mute.

    Old versions end there: see `DIFFERENCES`.
    """
    ids = made(side, prefix, BEFORE[api])
    strict = version >= STRICT_FROM[api]
    told: list[Told] = []
    with ExitStack() as stack:
        client = None
        for step in steps(api, version, prefix, ids):
            if strict or not step.strict:
                client = client or stack.enter_context(side.client(user, client_id))
                told.append(ask(client, api, version, step.parts, step.dry))
                client = None if told[-1].throttle_ms else client
    return told


def same(api: str, version: int, kafka: list[Told], weir: list[Told]) -> None:
    """Both say the same, but for the words of `DIFFERENCES`, and mean the same waits."""
    firsts = [next((one for one in told if 0 in one.errors), told[-1]) for told in (kafka, weir)]
    assert len(kafka) == len(weir)
    for theirs, ours in zip(kafka, weir, strict=True):
        for item in ours.items:
            throttled = item["error_code"] == 89 or (item["error_code"] == 0 and ours.throttle_ms)
            if throttled and item.get("error_message") is not None:
                assert "is exceeded" in item["error_message"] and "retry after" in item["error_message"]
                item["error_message"] = None
        if (api, version) == ("delete", 6):
            refused = [item for told in (theirs, ours) for item in told.items if item["error_code"] == 89]
            assert [item.pop("topic_id") for item in refused] in ([], [True, False]), (theirs, ours)
        assert theirs.items == ours.items, (theirs, ours)
        alike(theirs, ours, *firsts)


def alike(kafka: Told, weir: Told, kafka_first: Told, weir_first: Told) -> None:
    """Both waits are of one balance, but for the time that has passed on either side."""
    assert bool(kafka.throttle_ms) == bool(weir.throttle_ms), (kafka, weir)
    if kafka.throttle_ms:
        (low, high), (least, most) = kafka.owed(kafka_first), weir.owed(weir_first)
        assert max(low, least) <= min(high, most) + ROUNDED_MS, (kafka, weir)


class Difference(NamedTuple):
    """Something that is not alike, and why.

    Attributes:
        what: of what.
        kafka, weir: what each does.
        why: the reason.
        test: which holds both to it, of tests/kafka.
    """

    what: str
    kafka: str
    weir: str
    why: str
    test: str


PAGE: Final = ROOT / "docs" / "equivalence.md"
BEGIN, END = "<!-- differences -->", "<!-- end differences -->"
_HERE: Final = "test_equivalence.py::"
DIFFERENCES: Final = (
    Difference(
        "Message of error 89", "null", "whose quota, its rate, the balance, how long, and what explains it",
        "people read it; clients go by the code", f"{_HERE}test_mutations",
    ),
    Difference(
        "Message beside error 0 where CreateTopics 2 to 5 or CreatePartitions 0 to 2 is throttled", "null",
        "the same words", "old versions have no other place for them (KIP-599's draft)",
        f"{_HERE}test_mutations",
    ),
    Difference(
        "Id of a topic that DeleteTopics 6 names and is rejected", "told", "zero",
        "clients know it by what they asked with", f"{_HERE}test_mutations",
    ),
    Difference(
        "Dry runs within the quota", "charged in full", "cost nothing",
        "KIP-599 exempts them; beyond the quota both refuse", f"{_HERE}test_dry_runs",
    ),
    Difference(
        "Old versions on another connection, while the first is mute", "carried out, the debt grows",
        "wait too", "the quota's entity waits, not a connection", f"{_HERE}test_another_connection",
    ),
    Difference(
        "Which topics of one DeleteTopics or CreatePartitions are rejected", "as its hash set has them",
        "the last ones", "as many; an order that clients can foresee", f"{_HERE}test_several_topics",
    ),
    Difference(
        "Topics that Metadata would create", "created until the balance is below 0, then error 3",
        "error 3, unless `proxy.auto_topic_creation` is `pass`", "who asks is not told that it was charged",
        f"{_HERE}test_auto_creation",
    ),
    Difference(
        "Produce beyond `producer_byte_rate`", "10 to 11 s of the rate pass at once, by each broker",
        "0.5 s of the rate, by all together; told waits are 9.4 to 10.6 s longer",
        "the rate is the cluster's, and no burst is to hit a broker", f"{_HERE}test_produce",
    ),
    Difference(
        "Fetch beyond `consumer_byte_rate`",
        "answered empty; a batch of more than ten seconds' rate never comes", "brought, then waited for",
        "what the broker has read is not thrown away", f"{_HERE}test_fetch",
    ),
    Difference(
        "ShareFetch beyond `consumer_byte_rate`", "records acquired, and answered without them",
        "held before it acquires", "a delivery would be spent ([3.9](protocol_notes.md#39-share-groups))",
        "test_share_groups.py::test_a_byte_rate_spends_no_deliveries",
    ),
)  # fmt: skip


def table() -> str:
    """The differences as Markdown."""
    heads = ["What", "Kafka's own quota", "Weir", "Why", "Test"]
    rows = [[*row[:4], f"`{row.test.rpartition('::')[2]}`"] for row in DIFFERENCES]
    return "\n".join(f"| {' | '.join(each)} |" for each in (heads, ["---"] * len(heads), *rows))
