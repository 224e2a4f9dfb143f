"""Weir's quotas and Kafka's own: the same verdicts, waits and effects (docs/equivalence.md)."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from broker_fixtures import apart, serving
from cluster_kit import DEFAULT_PARTITIONS, USERS, Cluster
from equivalence_kit import (
    DEFAULT,
    FREE,
    FREELY,
    MUTATIONS,
    OWN,
    VERSIONS,
    Entity,
    Side,
    Told,
    alike,
    ask,
    behind_weir,
    created,
    entities,
    grown,
    hear,
    made,
    plain,
    play,
    same,
    tell,
)
from kafka.protocol.admin.cluster import DescribeLogDirsRequest
from kafka_kit import build
from proxy_kit import until
from traffic_kit import batch, fetch_of, produce_of
from wire_client import WireClient, errors, metadata_request

from weir.stack.kafka import LocalKafka

Pair = tuple[Side, Side]
EVERY = (OWN, DEFAULT, FREE)
ALL_MUTATIONS = [(api, version) for api, versions in VERSIONS.items() for version in versions]
PRODUCES, FETCHES = range(3, 14), range(4, 19)
LARGE, SMALL = batch(1, size=40_000), batch(1, size=5_000)
RATE_BYTES = 1_000
EDGES = {
    ("create", 5), ("create", 6), ("grow", 2), ("grow", 3), ("delete", 4), ("delete", 6), ("produce", 9),
    ("produce", 13), ("fetch", 12), ("fetch", 18),
}  # fmt: skip
"""Versions that `make test` tries; the others are soak."""


def versions(*pairs: tuple[str, int]) -> list[Any]:
    """What a test goes through."""
    return [pair if pair in EDGES else pytest.param(*pair, marks=pytest.mark.soak) for pair in pairs]


def quotas() -> dict[Entity, dict[str, float | None]]:
    """All that is limited, each test under a client-id of its own; the last one shows that they hold."""
    found: dict[Entity, Any] = {(FREE, None): FREELY}
    for api, version in ALL_MUTATIONS:
        found |= entities(f"equal-{api}-{version}", 0.1, 0.2)
    sets = ("set-grow-3", "set-delete-5", "set-delete-6")
    for name in ("dry", "other", "auto", "change", *sets):
        found |= entities(f"equal-{name}", 0.1, 0.2)
    found |= entities("equal-mute-5", 1, 1) | entities("equal-mute-2", 1, 1)
    for key, each in (("producer", PRODUCES), ("consumer", FETCHES)):
        for version in each:
            name = f"equal-{key}-{version}"
            found |= entities(name, RATE_BYTES, 2 * RATE_BYTES, f"{key}_byte_rate")
    found |= entities("equal-consumer-small", RATE_BYTES, 2 * RATE_BYTES, "consumer_byte_rate")
    return found | {(OWN, "equal-probe"): {MUTATIONS: 0.001}}


@pytest.fixture(scope="module")
def pair(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Pair]:
    """A Kafka with its own quotas, and one behind Weir with the same."""
    folder, kind = tmp_path_factory.mktemp("plain"), pytestconfig.getoption("--kafka")
    properties = {"num.partitions": str(DEFAULT_PARTITIONS)}
    with (
        LocalKafka(folder, sasl=USERS, auto_create_topics=True, properties=properties, kind=kind) as kafka,
        apart(cluster, "equal") as own,
        serving(own, id="equal", sasl=True) as proxy,
    ):
        sides = plain(kafka), behind_weir(own, proxy)
        for side in sides:
            side.limit(quotas())
            until(partial(probed, side), what=f"quotas of {side.name}")
        proxy.await_part(1.0)
        yield sides


def probed(side: Side) -> bool:
    """Whether the last of the quotas is in force: one partition is more than there is."""
    name = f"probe-{time.monotonic_ns()}"
    with side.client(OWN, "equal-probe") as client:
        return ask(client, "create", 7, [created(name)]).errors == [89]


def once(
    side: Side, user: str, client_id: str, api: str, version: int, *parts: Any, dry: bool = False
) -> Told:
    """A request on a connection of its own."""
    with side.client(user, client_id) as client:
        return ask(client, api, version, parts, dry)


def settled(pair: Pair, prefix: str) -> dict[str, int]:
    """The topics and their partitions, the same on both sides; brokers learn of them a little later."""
    until(lambda: pair[0].partitions(prefix) == pair[1].partitions(prefix), what=f"the same {prefix}")
    return pair[0].partitions(prefix)


@pytest.mark.parametrize(("api", "version"), versions(*ALL_MUTATIONS))
def test_mutations(pair: Pair, api: str, version: int) -> None:
    """Nothing, bad and good topics, a debt, and what follows, of three users: same words, waits, topics."""
    for user in EVERY:
        client_id = f"equal-{api}-{version}"
        prefix = f"{client_id}-{user}-"
        kafka, weir = (play(side, user, client_id, api, version, prefix) for side in pair)
        same(api, version, kafka, weir)
        assert any(told.throttle_ms for told in weir) == (user != FREE)
        assert settled(pair, prefix)


def over(first: Told) -> float:
    """When the wait that was told is over at the earliest, s."""
    return first.asked + first.throttle_ms / 1_000


@pytest.mark.parametrize("version", [5, pytest.param(2, marks=pytest.mark.soak)])
def test_debts_add_up(pair: Pair, version: int) -> None:
    """Old versions on one connection: the second is read when the wait is over, and pays for itself."""
    told = []
    for side in pair:
        with side.client(OWN, f"equal-mute-{version}") as client:
            asked = time.monotonic()
            tell(client, "create", version, [created(f"mute-{version}-a", 12)])
            tell(client, "create", version, [created(f"mute-{version}-b", 1)])
            told.append([hear(client, "create", version, asked) for _ in range(2)])
    (kafka, kafka_second), (weir, weir_second) = told
    alike(kafka, weir, kafka, weir)
    for first, second in told:
        assert second.errors == [0] and second.came >= over(first)
    # Each was judged after the wait that was told before it.
    kafka_second, weir_second = (second._replace(asked=over(first)) for first, second in told)
    alike(kafka_second, weir_second, kafka, weir)
    settled(pair, f"mute-{version}-")


def test_a_changed_quota(pair: Pair) -> None:
    """While something is owed: a faster quota makes the rest shorter, a removed one ends it."""
    for side in pair:
        assert once(side, OWN, "equal-change", "create", 7, created("change-a", 40)).errors == [0]
        slow = once(side, OWN, "equal-change", "create", 7, created("change-b"))
        assert slow.errors == [89] and slow.throttle_ms > 38_900
        side.limit({(OWN, "equal-change"): {MUTATIONS: 1}})

        def quick(side: Side = side) -> bool:
            told = once(side, OWN, "equal-change", "create", 7, created("change-b"))
            return told.throttle_ms <= 38_900

        until(quick, what=f"a faster quota of {side.name}")
        side.limit({(OWN, "equal-change"): {MUTATIONS: None}, (None, "equal-change"): {MUTATIONS: None}})

        def free(side: Side = side) -> bool:
            return 89 not in once(side, OWN, "equal-change", "create", 7, created("change-c")).errors

        until(free, what=f"no quota of {side.name}")


@pytest.mark.parametrize("api", ["create", "grow"])
def test_dry_runs(pair: Pair, api: str) -> None:
    """Kafka charges them as if they were carried out."""
    make: Callable[[str, int], Any] = created if api == "create" else grown
    version, user = max(VERSIONS[api]), {"create": OWN, "grow": DEFAULT}[api]
    for side in pair:
        if api == "grow":
            made(side, "dry-grow-", {"a": 1})
        assert once(side, user, "equal-dry", api, version, make(f"dry-{api}-a", 40), dry=True).errors == [0]
    kafka, weir = (once(side, user, "equal-dry", "create", 7, created(f"dry-{api}-b")) for side in pair)
    assert (kafka.errors, weir.errors) == ([89], [0]) and kafka.throttle_ms and not weir.throttle_ms


def test_another_connection(pair: Pair) -> None:
    """An old version that knows no refusal: a new connection escapes Kafka's mute, and adds to the debt."""
    kafka, weir = pair
    waits = [once(side, OWN, "equal-other", "create", 5, created("other-a", 5)).throttle_ms for side in pair]
    more = once(kafka, OWN, "equal-other", "create", 5, created("other-b", 5))
    assert more.errors == [0] and more.throttle_ms > waits[0]
    with weir.client(OWN, "equal-other") as client:
        tell(client, "create", 5, [created("other-b", 5)])
        assert client.silent_for(0.3)
    assert list(weir.partitions("other-")) == ["other-a"]


@pytest.mark.parametrize(("api", "version"), versions(("grow", 3), ("delete", 5), ("delete", 6)))
def test_several_topics(pair: Pair, api: str, version: int) -> None:
    """As many pass, if not the same; all are tried."""
    prefix, names = f"set-{api}-{version}-", [str(number) for number in range(5)]
    told = []
    for side in pair:
        made(side, prefix, dict.fromkeys(names, 1))
        parts = [prefix + name if api == "delete" else grown(prefix + name, 2) for name in names]
        told.append(once(side, OWN, f"equal-set-{api}-{version}", api, version, *parts))
    kafka, weir = told
    assert Counter(kafka.errors) == Counter(weir.errors) and set(weir.errors) == {0, 89}
    assert weir.errors == sorted(weir.errors)
    alike(kafka, weir, kafka, weir)

    def left(side: Side) -> list[int]:
        return sorted(side.partitions(prefix).values())

    until(lambda: left(pair[0]) == left(pair[1]) != [1] * len(names), what="as many partitions")


def test_auto_creation(pair: Pair) -> None:
    """Kafka creates as long as there is a balance, and then says no more of it than Weir from the start."""
    said = []
    for side in pair:
        found = []
        for name in ("auto-a", "auto-b"):
            with side.client(OWN, "equal-auto") as client:
                answer = client.answer_to(metadata_request([name], 9, create=True))
            found.append((errors(answer)[name], answer.throttle_time_ms))
        said.append(found)
    assert said[0][1] == said[1][1] == (3, 0) and said[1][0] == (3, 0)
    until(lambda: pair[0].partitions("auto-") == {"auto-a": DEFAULT_PARTITIONS}, what="the first")
    assert pair[1].partitions("auto-") == {}


class Traffic(NamedTuple):
    """An answer to Produce or Fetch: of its one partition, and its throttle_time_ms."""

    part: dict[str, Any]
    throttle_ms: int


def produce(side: Side, user: str, client_id: str, version: int, topic: str, own_id: Any) -> Traffic:
    """One batch of 40 kB."""
    with side.client(user, client_id) as client:
        which = own_id if version >= 13 else topic
        said = client.answer_to(produce_of(version, which, records=LARGE, acks=-1))
    (found,) = said.responses
    return Traffic(found.partition_responses[0].to_dict(), said.throttle_time_ms)


def stored(side: Side, topic: str) -> int:
    """Bytes of a topic."""
    with WireClient(side.direct) as wire:
        parts = [{"topic": topic, "partitions": [0]}]
        (folder,) = wire.answer_to(build(DescribeLogDirsRequest, 1, topics=parts)).results
    return int(folder.topics[0].partitions[0].partition_size)


@pytest.mark.parametrize(("_", "version"), versions(*(("produce", version) for version in PRODUCES)))
def test_produce(pair: Pair, _: str, version: int) -> None:
    """Carried out and then throttled, by either; Kafka lets ten seconds of the rate pass before."""
    for user in EVERY:
        topic, client_id = f"produce-{version}-{user}", f"equal-producer-{version}"
        ids = [made(side, topic, {"": 1})[""] for side in pair]
        kafka, weir = (
            produce(side, user, client_id, version, topic, own_id)
            for side, own_id in zip(pair, ids, strict=True)
        )
        assert kafka.part == weir.part and kafka.part["error_code"] == 0
        assert stored(pair[0], topic) == stored(pair[1], topic) == len(LARGE)
        if user == FREE:
            assert kafka.throttle_ms == weir.throttle_ms == 0
        else:
            assert kafka.throttle_ms > 0 and 9_400 <= weir.throttle_ms - kafka.throttle_ms <= 10_600


def fetch(side: Side, user: str, client_id: str, version: int, topic: str, own_id: Any) -> Traffic:
    """All that there is of a partition."""
    with side.client(user, client_id) as client:
        which = own_id if version >= 13 else topic
        said = client.answer_to(fetch_of(version, which, max_wait_ms=500, max_bytes=1 << 20))
    found = said.responses
    return Traffic(found[0].partitions[0].to_dict() if found else {}, said.throttle_time_ms)


def filled(pair: Pair, topic: str, records: bytes) -> list[Any]:
    """A topic with a batch on both sides; its ids."""
    ids = [made(side, topic, {"": 1})[""] for side in pair]
    for side in pair:
        with WireClient(side.direct) as wire:
            said = wire.answer_to(produce_of(9, topic, records=records, acks=-1))
            assert said.responses[0].partition_responses[0].error_code == 0
    return ids


@pytest.mark.parametrize(("_", "version"), versions(*(("fetch", version) for version in FETCHES)))
def test_fetch(pair: Pair, _: str, version: int) -> None:
    """What is larger than ten seconds of the rate Kafka does not deliver at all."""
    topic, client_id = f"fetch-{version}", f"equal-consumer-{version}"
    ids = filled(pair, topic, LARGE)
    for user in EVERY:
        kafka, weir = (
            fetch(side, user, client_id, version, topic, own_id)
            for side, own_id in zip(pair, ids, strict=True)
        )
        assert weir.part["error_code"] == 0 and weir.part["records"]
        if user == FREE:
            assert kafka == weir and kafka.throttle_ms == 0
        else:
            assert not kafka.part.get("records") and kafka.throttle_ms > 0
            assert weir.throttle_ms > kafka.throttle_ms


def test_a_small_fetch(pair: Pair) -> None:
    """Within ten seconds of the rate both deliver the same."""
    ids = filled(pair, "fetch-small", SMALL)
    kafka, weir = (
        fetch(side, OWN, "equal-consumer-small", 12, "fetch-small", own_id)
        for side, own_id in zip(pair, ids, strict=True)
    )
    assert kafka.part == weir.part and kafka.part["records"]
    assert kafka.throttle_ms == 0 and 4_000 <= weir.throttle_ms <= 4_800
