"""What is Weir's own: its ids, as the cluster tells them."""

import pytest
from each_kit import each

from enforcer.kafka.guard.protected import _LOOKS_MAX, IDS_MAX, OwnTopics
from enforcer.wire.kafka.frames import NO_ID, string
from streaming.contract.topics import Topics

OURS = b"W" * 16


def test_no_id_is_nobodys() -> None:
    """Where topics have no ids every one of them is called zero, and others' must pass."""
    protected = OwnTopics(Topics(), active=True)
    for tell in (protected.learn, protected.saw):
        tell([NO_ID, OURS])
        assert protected.ids == {OURS} and not protected.has_id(NO_ID)
        assert not protected.may_be_in(bytes(100), 0, 100, True)
        assert protected.may_be_in(bytes(100) + OURS, 0, 116, True)


def test_ids_that_are_told_again_are_no_others() -> None:
    """They are looked up each 2 s: no connection leaves its short way for that."""
    protected = OwnTopics(Topics(), active=True)
    protected.learn([OURS])
    ids = protected.ids
    for tell in (protected.learn, protected.saw):
        tell([OURS])
        assert protected.ids is ids


def test_no_id_takes_no_place() -> None:
    """However many ids answers taught."""
    protected = OwnTopics(Topics(), active=True)
    ids = [bytes([number]) * 16 for number in range(1, IDS_MAX + 1)]
    protected.saw(ids)
    protected.saw([NO_ID])
    assert protected.ids == set(ids)


@each("prefix", ["weir.", "w" * 100 + ".", ""])
@each("padding", [300, 3])
def test_a_name_is_found_whatever_stands_around_it(prefix: str, padding: int) -> None:
    """In classic and flexible versions, short and long, with a length that is longer than it need be."""
    protected = OwnTopics(Topics(prefix), active=True)
    ours = protected.topics.policies
    names = [ours] if not prefix else [ours, prefix + "x" * (120 - len(prefix)), prefix.ljust(249, "y")]
    for name in names:
        lengths = [string(name, False), string(name, True)]
        if len(name) < 0x7F:
            lengths.append(bytes([0x80 | len(name) + 1, 0x80, 0]) + name.encode())
        for field in lengths:
            for around in (b"\0", b".", b"z", b"\xff"):
                data = around * padding + field + around * padding
                assert protected.may_be_in(data, 8 if padding > 8 else 0, len(data), True)
                assert protected.may_be_in(data[:-padding], 0, len(data) - padding, True)


@pytest.mark.parametrize("flexible", [False, True])
def test_a_name_that_only_holds_the_prefix_is_not_ours(flexible: bool) -> None:
    """However many there are, up to a bound: a large request of theirs need not be read."""
    protected = OwnTopics(Topics(), active=True)
    rows = [string(f"acme.weir.orders-{n}", flexible) + bytes(4) for n in range(_LOOKS_MAX)]
    data = bytes(10) + b"".join(rows)
    assert not protected.may_be_in(data, 8, len(data), True)
    assert protected.may_be_in(data + rows[0], 8, len(data) + len(rows[0]), True)
    assert protected.may_be_in(data + string("weir.usage", flexible), 8, len(data) + 12, True)
