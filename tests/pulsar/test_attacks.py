"""Ways round the limits of dispatch, tried on a real broker by a client without manners."""

import time
from collections.abc import Iterator

import pytest
from publish_kit import send_frame
from pulsar_dispatch_kit import filled, namespace, rate
from pulsar_kit import fresh
from pulsar_proxy_kit import PulsarThread, bare_proxy
from raw_pulsar import RawPulsar

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build, command
from enforcer.wire.pulsar.frames import command_end
from enforcer.wire.pulsar.schema import new_body
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak

RATE = 10
SECONDS = 3.0
MOST = RATE * (SECONDS + 1) + 1
STORED = 500
FULL = "persistent://public/default/"


@pytest.fixture(scope="module")
def proxy(pulsar: LocalPulsar) -> Iterator[PulsarThread]:
    """A proxy with a limit for each subscription."""
    with bare_proxy(pulsar.service) as made:
        made.set(namespace(subscription=rate(RATE)))
        yield made


@pytest.fixture
def topic(pulsar: LocalPulsar) -> str:
    """One with a backlog, its full name."""
    return filled(pulsar.service, STORED, 1)


def subscribe(topic: str, number: int = 1, request: int = 1, subscription: str = "") -> bytes:
    """A SUBSCRIBE from the first message on."""
    body = new_body(
        frames.SUBSCRIBE, topic=topic, subscription=subscription or fresh("s"), sub_type=0,
        consumer_id=number, request_id=request,
    )  # fmt: skip
    # initialPosition, which no rule reads.
    return build(frames.SUBSCRIBE, type(body).FromString(body.SerializeToString() + b"\x68\x01"))


def flow(number: int = 1) -> bytes:
    """All permits that anybody could want."""
    return command(frames.FLOW, consumer_id=number, message_permits=10_000)


def sound(frame: bytes) -> bytes:
    """A SEND of the kit's without its checksum, which is wrong."""
    at = command_end(frame)
    return (len(frame) - 10).to_bytes(4, "big") + frame[4:at] + frame[at + 6 :]


def looked_up(raw: RawPulsar, topic: str) -> None:
    """The broker serves it."""
    raw.send(command(frames.LOOKUP, topic=topic, request_id=999))
    raw.answers(1)


@pytest.fixture
def raw(proxy: PulsarThread, topic: str) -> Iterator[RawPulsar]:
    """A connection whose broker serves the topic."""
    with RawPulsar(proxy.bootstrap, "mallory") as made:
        looked_up(made, topic)
        yield made


def came(raw: RawPulsar) -> int:
    """Messages within some seconds; a connection that is ended brings none."""
    raw.limit(0.2)
    until, count = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        try:
            kind, _ = raw.receive()
        except TimeoutError:
            continue
        if not kind:
            break
        count += kind == frames.MESSAGE
    return count


def read(raw: RawPulsar, topic: str, subscription: str = "") -> int:
    """How much a consumer gets that asks for all."""
    raw.send(subscribe(topic, subscription=subscription))
    raw.answers(1)
    raw.send(flow())
    return came(raw)


def test_without_an_attack_the_limit_holds(raw: RawPulsar, topic: str) -> None:
    """What the others are measured by."""
    assert RATE < read(raw, topic) <= MOST


def test_a_refusal_of_another_request_with_the_same_id(raw: RawPulsar, topic: str) -> None:
    """SEEK of a consumer that is not there fails at once, while the SUBSCRIBE is under way."""
    raw.send(subscribe(topic, request=7), command(frames.SEEK, consumer_id=77, request_id=7))
    assert raw.receive()[0] == frames.ERROR
    time.sleep(0.3)
    raw.send(flow())
    assert came(raw) <= MOST


def test_an_end_of_another_request_with_the_same_id(raw: RawPulsar, topic: str) -> None:
    """UNSUBSCRIBE, and the close of a consumer that is not there, which always succeeds."""
    raw.send(subscribe(topic))
    raw.answers(1)
    raw.send(
        command(frames.CLOSE_CONSUMER, consumer_id=77, request_id=8),
        command(frames.UNSUBSCRIBE, consumer_id=1, request_id=8),
    )
    time.sleep(0.3)
    raw.send(flow())
    assert came(raw) <= MOST


def test_a_number_that_is_given_again_and_again(raw: RawPulsar, topic: str) -> None:
    """A SUBSCRIBE that fails, and many more of its number behind it."""
    missing = command(
        frames.SUBSCRIBE, topic="persistent://public/nowhere/x", subscription="s", consumer_id=1,
        request_id=1, force_topic_creation=False, sub_type=0,
    )  # fmt: skip
    for turn in range(20):
        raw.send(missing, *(subscribe(topic, request=100 + turn * 50 + each) for each in range(50)))
        time.sleep(0.01)
    raw.send(flow())
    assert came(raw) <= MOST


@pytest.mark.parametrize(
    ("scheme", "subscription"), [("Persistent://", ""), ("PERSISTENT://", ""), ("persistent://", "s" * 5_000)]
)
def test_names_in_capitals_and_very_long_ones(
    raw: RawPulsar, topic: str, scheme: str, subscription: str
) -> None:
    """Brokers read capitals, and keep no reader's name anywhere."""
    assert read(raw, topic.replace("persistent://", scheme), subscription) <= MOST


@pytest.mark.parametrize(
    "local",
    ["x" * 1_100, "__transaction_log_", "__transaction_buffer_snapshot_", "{}__transaction_pending_ack"],
)
def test_names_that_look_like_pulsars_own(proxy: PulsarThread, pulsar: LocalPulsar, local: str) -> None:
    """Topics that anybody may make; those that the broker keeps for itself bring nothing."""
    name = FULL + (local.format(fresh("t")) if "{" in local else local + fresh("t"))
    with RawPulsar(pulsar.service, "mallory") as raw:
        looked_up(raw, name)
        raw.send(command(frames.PRODUCER, topic=name, producer_id=1, request_id=1))
        if raw.receive()[0] == frames.PRODUCER_SUCCESS:
            raw.send(*(sound(send_frame(1, each)) for each in range(STORED)))
            raw.answers(STORED)
    with RawPulsar(proxy.bootstrap, "mallory") as raw:
        looked_up(raw, name)
        assert read(raw, name) <= MOST


def test_closing_behind_each_grant(raw: RawPulsar, topic: str) -> None:
    """What comes behind the close is for nobody, so it counts for nobody."""
    count = turn = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        turn += 1
        close = command(frames.CLOSE_CONSUMER, consumer_id=1, request_id=turn * 2 + 1)
        for request in (subscribe(topic, request=turn * 2, subscription="same"), close):
            raw.send(request)
            kind = 0
            while kind not in (frames.SUCCESS, frames.ERROR):
                kind, _ = raw.receive()
                count += kind == frames.MESSAGE
            raw.send(flow())
            time.sleep(turn % 7 * 0.0004)
    assert turn > 20
    assert count <= MOST
