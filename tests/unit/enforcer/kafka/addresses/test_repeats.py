"""Answers changed once are changed again without being read, as long as nothing else would come out."""

import struct

import pytest
from connection_kit import API_VERSIONS, METADATA, Rig, framed, header

from enforcer.kafka.addresses.brokers import REPEATED_BYTES, REPEATS_MAX, Repeats
from enforcer.kafka.pipeline.responses import Responses


def brokers_rig() -> Rig:
    """A proxy with room for broker ports, whose sockets are closed at once."""
    rig = Rig()
    rig.brokers._brokers_max, rig.brokers._listen_host = 9, "127.0.0.1"
    rig.brokers._serve = lambda listener, _broker: listener.close()
    return rig


def answer(number: int, host: bytes) -> bytes:
    """A Metadata answer, version 1, of a cluster with one broker and no topic."""
    broker = struct.pack(">ih", 1, len(host)) + host + struct.pack(">ih", 9092, -1)
    return struct.pack(">ii", number, 1) + broker + struct.pack(">ii", 1, 0)


def test_the_second_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets the same again, with the correlation id of its own request."""
    rig = brokers_rig()
    for number in (1, 2):
        rig.connection.data_received(framed(header(METADATA, 1, number) + b"\xff\xff\xff\xff"))
    rig.answer([answer(1, b"kafka")])
    with monkeypatch.context() as patched:
        patched.setattr(Responses, "_read", None)
        rig.answer([answer(2, b"kafka")])
    first, second = rig.client.data[: len(rig.client.data) // 2], rig.client.data[len(rig.client.data) // 2 :]
    assert rig.client.answered() == [1, 2] and first[8:] == second[8:] and b"kafka" not in first


def test_a_broker_that_moved_is_read_again() -> None:
    """What was known is said no more once an address is another one."""
    rig = brokers_rig()
    for number, host in enumerate((b"kafka", b"moved", b"kafka")):
        rig.connection.data_received(framed(header(METADATA, 1, number) + b"\xff\xff\xff\xff"))
        rig.answer([answer(number, host)])
        assert rig.brokers._brokers[1].host == host.decode()
    assert rig.client.answered() == [0, 1, 2]


def test_of_a_long_answer_nothing_is_copied_to_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tens of thousands of topics that would be megabytes, twice."""
    rig = brokers_rig()
    monkeypatch.setattr(Repeats, "keep", None)
    rig.connection.data_received(framed(header(METADATA, 1, 1) + b"\xff\xff\xff\xff"))
    rig.answer([answer(1, b"k" * REPEATED_BYTES)])
    assert rig.client.answered() == [1]


def test_what_is_known_is_bounded() -> None:
    """In number and in bytes."""
    repeats = Repeats()
    for number in range(2 * REPEATS_MAX):
        repeats.keep(API_VERSIONS, 0, b"%d" % number, b"left")
        assert len(repeats._known) <= REPEATS_MAX
    assert repeats.find(API_VERSIONS, 0, b"%d" % (2 * REPEATS_MAX - 1)) == (struct.pack(">i", 8), b"left")
    repeats.clear()
    long = bytes(REPEATED_BYTES + 1)
    repeats.keep(API_VERSIONS, 0, long, b"")
    repeats.keep(API_VERSIONS, 0, b"", long)
    assert not repeats._known and repeats.find(API_VERSIONS, 0, long) is None
