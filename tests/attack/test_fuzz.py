"""Frames that nobody should send, by the ten thousand: the proxy stands, other clients notice nothing.

Seeds are what real clients and a real broker said (tests/attack/corpus.json); what is done to them is in
tests/kit/fuzz_kit.py. A failure says how to repeat it; mended ones are kept in HARM.
"""

import gc
import logging
from collections.abc import Iterator

import pytest
from broker_fixtures import installed
from fuzz_kit import seeds
from fuzz_network import Bystander, LyingBroker, attack
from fuzz_rig import KINDS, Rig
from watched_proxy import WatchedProxy

from enforcer.host.budget import resident_bytes
from enforcer.wire.kafka.frames import METADATA
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka

GROWTH_MAX_BYTES = 64 << 20
TURN_MAX_S = 0.050
COLLECTION_MAX_S = 0.5
BYSTANDER_P99_MS = 100
TRIES = 3
SEED = 20_261_122
IN_PROCESS = 45_000
SOAK = 10_000_000
SOAK_PARTS = 5
ON_SOCKETS = 5_000
_WARM_UP = 2_000


def frame(hex_text: str) -> bytes:
    """With its length."""
    data = bytes.fromhex(hex_text)
    return len(data).to_bytes(4, "big") + data


HARM = {
    "a client-id of 32,767 bytes that are not UTF-8 grew to 98,301, too many for the look-up's header": (
        "limited",
        frame("0014 0006 00000001 7fff" + "ff" * 32_767 + "00 02 0261" + "00" * 17 + "00001388 00"),
    ),
}
"""What streams once did: the proxy's kind (fuzz_rig.KINDS) and what the client sends. Each request is
answered with what was recorded for its API and version."""


def test_every_seed_is_understood() -> None:
    """The schemas read each recorded message to its end, but for what is known."""
    answers = [one for many in seeds().answers.values() for one in many]
    unread = {one.key for one in (*seeds().requests, *answers) if one.layout.end < len(one.data)}
    # librdkafka writes the null list of a Metadata request for all topics as four bytes, so that three are
    # left over.
    assert unread == {METADATA}
    assert len({one.key for one in seeds().requests}) == 56


@pytest.mark.parametrize(("kind", "client"), HARM.values(), ids=HARM)
def test_what_did_harm_once(kind: str, client: bytes) -> None:
    """No exception leaves the proxy, whatever comes of the connection."""
    with Rig(kind, SEED) as rig:
        rig.play(client)
        rig.settle()


def hold_out(kind: str, seed: int, frames: int) -> None:
    """Fuzz a proxy and hold its memory and its loop to their bounds."""
    gc.collect()
    gc.freeze()
    # pytest keeps what is logged of each broken answer, by its traceback the connection too, and of each try,
    # a hundred a second, to reach the Kafka that is not there.
    logging.disable(logging.ERROR)
    try:
        with Rig(kind, seed) as rig:
            rig.run(_WARM_UP)
            before, rig.loop.longest_s = resident_bytes(), 0.0
            rig.run(frames)
            rig.settle()
            assert resident_bytes() - before < GROWTH_MAX_BYTES
            assert rig.loop.longest_s < TURN_MAX_S, rig.told_of(rig.loop.longest_turn)
            # Objects that pile up show here before memory does.
            assert rig.loop.collecting_s < COLLECTION_MAX_S
    finally:
        logging.disable(logging.NOTSET)
        gc.unfreeze()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "metered" else pytest.mark.soak) for kind in KINDS]
)
def test_hostile_frames(kind: str) -> None:
    """Some ten thousand frames and their answers with each kind of rules."""
    hold_out(kind, SEED, IN_PROCESS // len(KINDS))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_frames_for_an_hour(kind: str, part: int) -> None:
    """Ten millions of them, other ones each time."""
    hold_out(kind, SEED + 1 + part, SOAK // SOAK_PARTS // len(KINDS))


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A broker that nobody else needs: some of what is sent is carried out."""
    bounds = {"socket.request.max.bytes": "1048576", "num.partitions": "1"}
    kafka = LocalKafka(tmp_path_factory.mktemp("fuzz"), auto_create_topics=True, properties=bounds)
    rates = {"controller_mutation_rate": 50, "producer_byte_rate": 1e9, "consumer_byte_rate": 1e9}
    with kafka, installed(kafka, Topics()) as cluster:
        cluster.policies.put("quotas[user=<default>]", rates)
        yield kafka


@pytest.mark.soak
def test_hostile_clients_on_sockets(own_kafka: LocalKafka) -> None:
    """A real proxy before a real broker: nothing in its log, bounded memory, a bystander served in time."""
    with WatchedProxy(own_kafka.bootstrap, own_kafka.bootstrap, "weir.") as proxy:
        attack(proxy.bootstrap, SEED, ON_SOCKETS // 10)
        before = proxy.report()
        waits = [bystander_waits(proxy, own_kafka, SEED + 1)]
        after = proxy.report()
        assert after["errors"] == []
        assert after["resident_bytes"] - before["resident_bytes"] < GROWTH_MAX_BYTES
        assert after["longest_ms"] < 1000 * TURN_MAX_S
        # What a proxy does to bystanders it does each time, a busy machine does not.
        while min(waits) > 0 and len(waits) < TRIES:
            waits.append(bystander_waits(proxy, own_kafka, SEED + 1))
    assert min(waits) <= 0, f"ms beyond what a bystander may wait, in {TRIES} tries: {waits}"


def bystander_waits(proxy: WatchedProxy, kafka: LocalKafka, seed: int) -> float:
    """By how much a bystander's p99 during an attack is beyond its bound, ms."""
    with Bystander(proxy.bootstrap) as through, Bystander(kafka.bootstrap) as straight:
        attack(proxy.bootstrap, seed, ON_SOCKETS)
    # On a machine with other work the broker makes everybody wait too, and behind a proxy one waits for two
    # processes to get their turn.
    return through.p99_ms() - BYSTANDER_P99_MS - 2 * straight.p99_ms()


@pytest.mark.soak
def test_a_hostile_broker_on_sockets(own_kafka: LocalKafka) -> None:
    """A broker that answers with anything at all harms those who asked, and nobody else."""
    with LyingBroker(SEED) as broker, WatchedProxy(broker.address, own_kafka.bootstrap, "weir.") as proxy:
        attack(proxy.bootstrap, SEED + 2, ON_SOCKETS // 10, honest=True)
        before = proxy.report()
        attack(proxy.bootstrap, SEED + 3, ON_SOCKETS, honest=True)
        after = proxy.report()
        assert len(broker.answers) > ON_SOCKETS // 5
        assert after["errors"] == []
        assert after["resident_bytes"] - before["resident_bytes"] < GROWTH_MAX_BYTES
        assert after["longest_ms"] < 1000 * TURN_MAX_S
