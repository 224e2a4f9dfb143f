"""What a SEND counts for, also where it lies."""

import pytest
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from publish_kit import send_frame

from enforcer.pulsar.publish.pending_sends import read_send
from enforcer.wire.pulsar.frames import BadFrame, command_end


@each(
    ("claimed", "batch", "compression", "messages"),
    [
        (None, None, 0, 1), (1, None, 0, 1), (30, 30, 0, 30), (1, 30, 0, 30), (None, 30, 0, 30),
        (30, None, 0, 30), (0, 0, 0, 1), (-5, -7, 0, 1), (2_147_483_647, 1, 0, 100),
        (1, 2_147_483_647, 0, 100), (1, 2_147_483_647, 1, 25_200), (1, 2_147_483_647, 77, 600),
        (1, 2_147_483_647, -1, 600),
    ],
)
def test_the_greater_claim_counts_as_far_as_the_bytes_can_hold_it(
    claimed: int | None, batch: int | None, compression: int, messages: int
) -> None:
    """Who claims less in one place pays for the other, and nobody can claim more than there is room for."""
    frame = send_frame(
        3, 7, claimed=claimed, batch=batch, compression=compression, payload=b"x" * 600, highest=9
    )
    send = read_send(frame)
    assert send[:4] == (3, 7, 9, messages)
    assert send.size == len(frame) - command_end(frame)


def test_a_message_that_cannot_be_read_is_no_message() -> None:
    """Its connection ends."""
    whole = send_frame(1, 1)
    with pytest.raises(BadFrame):
        read_send(whole[: command_end(whole)])
    with pytest.raises(BadFrame):
        read_send(whole.replace(b"\x0a\x01p", b"\x0a\x7fp"))


@given(st.data())
def test_a_damaged_send_is_read_or_refused(data: st.DataObject) -> None:
    """Nothing else comes of it; what is read counts for something, and not for more than it can hold."""
    frame = bytearray(send_frame(1, 2, claimed=5, batch=5, compression=1))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        send = read_send(bytes(frame))
    except BadFrame:
        return
    assert 1 <= send.messages <= 5_000 * len(frame)
    assert 0 < send.size <= len(frame)
