"""Which requests would create which topic, and how each is refused."""

from typing import Any

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st

from enforcer.pulsar.creation.request import ASKING, CreationRequest, read_want, refusal
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import command, parse


def want_of(kind: int, **fields: Any) -> CreationRequest | None:
    """What a request with these fields would create."""
    return read_want(kind, command(kind, request_id=3, **fields))


def test_producers_create() -> None:
    """One topic, which their answer names."""
    want = want_of(frames.PRODUCER, topic="a/b/t", producer_id=4)
    assert want is not None
    assert (want.name, want.request_id, want.owner) == ("persistent://a/b/t", 3, (frames.CLOSE_PRODUCER, 4))


@each("said", [{}, {"force_topic_creation": True}, {"force_topic_creation": False}])
def test_consumers_create_unless_they_say_otherwise(said: dict[str, bool]) -> None:
    """Old clients say nothing."""
    want = want_of(frames.SUBSCRIBE, topic="t", consumer_id=5, **said)
    assert (want is not None) is all(said.values())
    assert want is None or want.owner == (frames.CLOSE_CONSUMER, 5)


@each("topic", ["t", "non-persistent://a/b/t"])
@each("said", [{}, {"metadata_auto_creation_enabled": True}, {"metadata_auto_creation_enabled": False}])
def test_questions_for_partitions_create_unless_they_say_otherwise(said: dict[str, bool], topic: str) -> None:
    """Of topics that are not stored as well: their number of partitions is."""
    want = want_of(frames.PARTITIONED_METADATA, topic=topic, **said)
    assert (want is not None) is all(said.values())
    assert want is None or want.owner is None


def test_topics_that_are_not_stored_are_not_created() -> None:
    """By producers and consumers."""
    assert want_of(frames.PRODUCER, topic="non-persistent://a/b/t", producer_id=1) is None
    assert want_of(frames.SUBSCRIBE, topic="non-persistent://a/b/t", consumer_id=1) is None
    # A domain that only a broker can read may be stored.
    assert want_of(frames.PRODUCER, topic="new://a/b/t", producer_id=1) is not None
    # Brokers read this one as the first.
    assert want_of(frames.PRODUCER, topic="Non-Persistent://a/b/t", producer_id=1) is None


@pytest.mark.parametrize("kind", sorted(ASKING))
def test_a_name_that_is_no_text(kind: int) -> None:
    """A broker would make some name of it, and we perhaps another."""
    frame = command(kind, topic="abcd", request_id=1).replace(b"abcd", b"\xff\xfe\xfd\xfc")
    with pytest.raises(frames.BadFrame):
        read_want(kind, frame)


@given(st.sampled_from(sorted(ASKING)), st.text(max_size=200))
def test_any_name_is_one(kind: int, name: str) -> None:
    """One that means nothing to us is asked for as it is."""
    frame = command(kind, topic=name.encode("utf-8", "replace").decode(), request_id=1)
    want = read_want(kind, frame)
    assert want is None or want.frame == frame


def test_refusals() -> None:
    """Each request has its own."""
    for kind, answer in ((frames.PRODUCER, frames.ERROR), (frames.SUBSCRIBE, frames.ERROR),
                         (frames.PARTITIONED_METADATA, frames.PARTITIONED_METADATA_RESPONSE)):  # fmt: skip
        want = want_of(kind, topic="t")
        assert want is not None
        frame = refusal(want, 22, "no")
        body = parse(frame)
        assert (frame[9], body.request_id, body.error, body.message) == (answer, 3, 22, "no")
    assert body.response == 1
