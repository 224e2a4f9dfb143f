"""What is Weir's own: its ids, as the cluster tells them."""

from enforcer.kafka.guard.protected import IDS_MAX, Protected
from enforcer.kafka.protocol.fields import NO_ID
from streaming.contract.topics import Topics

OURS = b"W" * 16


def test_no_id_is_nobodys() -> None:
    """Where topics have no ids every one of them is called zero, and others' must pass."""
    protected = Protected(Topics(), active=True)
    for tell in (protected.learn, protected.saw):
        tell([NO_ID, OURS])
        assert protected.ids == {OURS} and not protected.has_id(NO_ID)
        assert not protected.may_be_in(bytes(100), 0, 100, True)
        assert protected.may_be_in(bytes(100) + OURS, 0, 116, True)


def test_no_id_takes_no_place() -> None:
    """However many ids answers taught."""
    protected = Protected(Topics(), active=True)
    ids = [bytes([number]) * 16 for number in range(1, IDS_MAX + 1)]
    protected.saw(ids)
    protected.saw([NO_ID])
    assert protected.ids == set(ids)
