"""Notes of what was pushed: read back, whatever somebody else wrote there."""

import pytest
from limits_kit import FakePulsar, rest_of, run

from streaming.collect.pulsar.limits import Kind, Rates, Slot
from streaming.collect.pulsar.notes import PREFIX, Note, Notes, notes_in
from streaming.collect.pulsar.rest import RestError
from streaming.contract.errors import WeirError

SLOT = Slot("a/b", "", "", Kind.PUBLISH)
NOTE = Note(Rates(9, -1), Rates(5, 7))


def test_notes_read_back_and_go() -> None:
    """One property a namespace; none once nothing of ours is left."""
    fake = FakePulsar()
    fake.properties["other"] = "x"
    notes = Notes(rest_of(fake), "pulsar/system")

    async def work() -> None:
        await notes.write("a/b", {SLOT: NOTE})
        assert list(fake.properties) == ["other", f"{PREFIX}a~b"]
        assert await notes.read() == {SLOT: NOTE}
        await notes.write("a/b", {})

    run(work())
    assert fake.properties == {"other": "x"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"publishRate a/b":7}',
        '{"publishRate a/b":[[1,2],null]}',
        '{"x":[[1,2,3],null]}',
        '{"publishRate a/b":[null,null]}',
        '{"publishRate a/b":[[1,2,"3"],null]}',
    ],
)
def test_what_is_no_note_is_passed_over(text: str) -> None:
    """Then the limit is somebody else's, and left alone."""
    assert notes_in(text) == {}


def test_a_missing_namespace_is_said_with_its_setting() -> None:
    """Nothing is pushed where nothing can be noted."""
    fake = FakePulsar()
    fake.fail = lambda _method, _path: 404
    with pytest.raises(RestError, match="notes_namespace"):
        run(Notes(rest_of(fake), "pulsar/system").read())
    with pytest.raises(WeirError, match="TENANT/NAMESPACE was expected"):
        Notes(rest_of(fake), "pulsar")
