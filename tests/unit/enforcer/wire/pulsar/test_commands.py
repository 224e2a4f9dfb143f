"""Commands: what is not known to us survives, and what cannot be read is refused."""

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from message_kit import kind_of

from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import CONNECTION, build, command, error, parse, rewritten
from enforcer.wire.pulsar.frames import BadFrame, Reason
from enforcer.wire.pulsar.schema import BODIES, MESSAGES, new_body, read

UNKNOWN = b"\xfa\x06\x05known\xc0\x3e\x07"
"""Fields 111 and 1000 of nobody's."""


@each("kind", sorted(BODIES))
def test_unknown_fields_survive(kind: int) -> None:
    """A frame that was read and written again has all that it had."""
    frame = build(kind, new_body(kind))
    at = len(frame)
    with_more = bytearray(build(kind, new_body(kind), UNKNOWN))
    # The same bytes, inside the body.
    size = int.from_bytes(with_more[4:8], "big") + len(UNKNOWN)
    with_more[4:8] = size.to_bytes(4, "big")
    with_more[at - 1] = len(UNKNOWN)
    body = parse(bytes(with_more))
    assert rewritten(bytes(with_more), body) == bytes(with_more)


@given(st.integers(0, 2**64 - 1), st.text(max_size=40), st.binary(max_size=50))
def test_a_message_stays_behind_its_command(number: int, text: str, message: bytes) -> None:
    """Rewriting a command changes the two sizes and nothing behind it."""
    frame = build(frames.SEND, new_body(frames.SEND, producer_id=1, sequence_id=number), message)
    body = parse(frame)
    assert (body.producer_id, body.sequence_id) == (1, number)
    body.producer_id = 2**63
    again = rewritten(frame, body)
    assert again.endswith(message) and kind_of(again) == frames.SEND
    assert parse(again).producer_id == 2**63


def test_bytes_are_those_of_the_protocol() -> None:
    """One frame written by hand: ERROR for a request, as PulsarApi has it."""
    assert error(5, 22, "no").hex(" ") == "00 00 00 10 00 00 00 0c 08 0e 72 08 08 05 10 16 1a 02 6e 6f"
    assert parse(error(CONNECTION, 3, "x")).request_id == 2**64 - 1
    assert command(frames.PING).hex(" ") == "00 00 00 09 00 00 00 05 08 12 92 01 00"


def test_numbers_are_not_used_twice() -> None:
    """Each field of a message has a number of its own, each kind a message, but PING and PONG."""
    for fields in MESSAGES.values():
        assert len({number for number, _ in fields.values()}) == len(fields)
    assert len(set(BODIES.values())) == len(BODIES) - 1


@pytest.mark.parametrize("body", [b"\x08", b"\x0a\xff\x01x", b"\x07", b"\x0a\x01\xff"])
def test_what_is_no_body(body: bytes) -> None:
    """A body that is no protobuf of its kind."""
    frame = bytearray(command(frames.LOOKUP))
    frame[-1] = len(body)
    total = len(frame) - 8 + len(body)
    data = (total + 4).to_bytes(4, "big") + total.to_bytes(4, "big") + bytes(frame[8:]) + body
    with pytest.raises(BadFrame) as caught:
        parse(data)
    assert caught.value.reason is Reason.BAD_BODY


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (frames.CONNECT, 1), (frames.PRODUCER, 4), (frames.PRODUCER, 13), (frames.PRODUCER_SUCCESS, 2),
        (frames.SUBSCRIBE, 6),
    ],
)  # fmt: skip
def test_names_that_no_rule_reads_need_not_be_text(kind: int, field: int) -> None:
    """Of producers and consumers: clients send any bytes there, and brokers take them."""
    body = new_body(kind)
    body.MergeFromString(bytes((field << 3 | 2, 2)) + b"\xe9x")
    frame = build(kind, body)
    assert b"\xe9x" in frame and rewritten(frame, parse(frame)) == frame


def test_metadata() -> None:
    """What a batch says of itself."""
    assert read("MessageMetadata", b"\x0a\x01p\x10\x05\x18\x07\x58\x1e").num_messages_in_batch == 30
    with pytest.raises(BadFrame):
        read("MessageMetadata", b"\xff")
