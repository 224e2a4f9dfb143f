"""ShareFetch as it is read and cut down: only four numbers of a request change, and nothing of an answer."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from share_frames import id_of, read_request, share_request, share_response
from traffic_kit import batch

from enforcer.wire.kafka.batches import count_batches
from enforcer.wire.kafka.frames import BadFrame, parse_header
from enforcer.wire.kafka.traffic import ShareUse, shared, sharing, with_limit, with_share

NAMES = st.lists(st.sampled_from(["t", "u", "v"]), unique=True)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
VERSIONS = st.integers(1, 2)


@given(
    VERSIONS, INT32, NAMES, NAMES, NAMES, st.one_of(st.none(), st.text(max_size=9)), INT32, INT32, INT32,
    st.integers(0, 9), st.integers(1, 9),
)  # fmt: skip
def test_a_request_is_cut_down_in_place(
    version: int, epoch: int, topics: list[str], acknowledged: list[str], forgotten: list[str],
    group: str | None, wait_ms: int, min_bytes: int, max_bytes: int, records: int, size: int,
) -> None:  # fmt: skip
    """What it asks for, whatever stands before and behind; acknowledgements stay as they are."""
    frame, header = share_request(
        topics, version=version, epoch=epoch, acknowledged=acknowledged, forgotten=forgotten, group=group,
        MaxWaitMs=wait_ms, MinBytes=min_bytes, MaxBytes=max_bytes,
    )  # fmt: skip
    asked = sharing(frame, header)
    assert (asked.group, asked.epoch, asked.max_bytes) == (group, epoch, max_bytes)
    assert asked.acknowledges == bool(acknowledged) and asked.acquires == (epoch >= 0 and max_bytes != 0)
    assert asked.topics == [(id_of(name), [0]) for name in dict.fromkeys((*topics, *acknowledged))]
    assert [(topic, list(parts)) for topic, parts in asked.forgotten] == [
        (id_of(name), [0]) for name in forgotten
    ]
    said = read_request(frame)
    waits = wait_ms if records else 0
    room = {"MaxWaitMs": waits, "MinBytes": min(min_bytes, size), "MaxBytes": size, "MaxRecords": records}
    assert read_request(with_share(frame, asked, records=records, size=size)) == said | room
    if max_bytes > 0:
        less = {"MinBytes": min(min_bytes, 7), "MaxBytes": min(max_bytes, 7)}
        assert read_request(with_limit(frame, asked.summary, 7)) == said | less


@given(st.data())
def test_damaged_messages_are_refused(data: st.DataObject) -> None:
    """With bytes changed or cut off they are read or refused, and nothing else happens."""
    request, _ = share_request(["t", "u"], acknowledged=["t"], forgotten=["v"])
    answer = share_response({"t": (batch(3), [(0, 2, 1)]), "u": (batch(1), [])})
    for frame in (request, answer):
        place = data.draw(st.integers(0, len(frame) - 1))
        byte = data.draw(st.binary(max_size=2))
        damaged = frame[:place] + byte + frame[place + 1 :]
        with suppress(BadFrame):
            if frame is request:
                sharing(damaged, parse_header(damaged))
            else:
                for use in shared(damaged, 2):
                    assert 0 <= use.again <= use.records <= 4


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_acquired_counts(version: int) -> None:
    """Not the rest of its batches; of offsets with gaps no more than these hold; what came before apart."""
    ten = batch(10)
    answer = share_response(
        {
            "t": (ten + ten, [(0, 3, 1), (4, 6, 2)]), "u": (batch(2), [(0, 10**12, 3)]), "v": (b"", []),
            "w": (ten[:-1], [(0, 9, 1)]),
        },
        version,
    )
    assert shared(answer, version) == [
        ShareUse(id_of("t"), 7, 2 * len(ten), 2, 3),
        ShareUse(id_of("u"), 2, len(batch(2)), 1, 2),
        # A batch that is cut off: nobody can read it, but its bytes passed.
        ShareUse(id_of("w"), 0, len(ten) - 1, 0, 0),
    ]


def test_batches_are_counted_whole() -> None:
    """Up to the end, whatever lengths say."""
    one = batch(2)
    assert [count_batches(one * 3, 0, end) for end in (0, 5, len(one), 3 * len(one) - 1)] == [0, 0, 1, 2]
    assert count_batches(bytes(200), 0, 200) < 20
