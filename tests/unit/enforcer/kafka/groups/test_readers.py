"""Which group reads: one of one, one of several by what it was told to read, none, not known which."""

from typing import Any

import pytest

from enforcer.kafka.groups import readers
from enforcer.kafka.groups.readers import IDLE_MS, MEMBERS_MAX, Client, Readers

ALICE = Client("alice", "10.0.0.1", "rdkafka")
BOB = Client("bob", "10.0.0.1", "rdkafka")
ID = bytes(15) + b"\1"


class Table(Readers):
    """A table with a clock."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        super().__init__(lambda: self.now_ms)

    def of(self, client: Client, *parts: int) -> str | None:
        """Who reads these partitions of topic t; "": nobody; None: one of several."""
        found = self.matching(client, ["t", ID], frozenset(parts))
        return None if len(found) > 1 else "".join(found)


@pytest.fixture
def table() -> Table:
    """It is empty."""
    return Table()


def test_a_client_without_a_group(table: Table) -> None:
    """As with assign()."""
    assert table.of(ALICE, 0) == ""
    table.saw(ALICE, "")
    assert table.of(ALICE, 0) == "" and table.groups(ALICE) == []


def test_one_group(table: Table) -> None:
    """It reads what nobody has told it, or what it was told; another client's is another's."""
    table.saw(ALICE, "g", "m")
    assert table.of(ALICE, 0, 1) == "g"
    assert table.of(BOB, 0) == ""
    table.assigned(ALICE, "g", "m", {"t": frozenset({0})})
    assert table.of(ALICE, 0) == "g"
    assert table.of(ALICE, 0, 1) == ""


def test_several_groups_by_their_assignments(table: Table) -> None:
    """Partitions by name or id say which; where both hold them, or one is not known, nobody can tell."""
    table.assigned(ALICE, "g", "m", {"t": frozenset({0, 1})})
    table.assigned(ALICE, "h", "m", {ID: frozenset({2})})
    assert (table.of(ALICE, 1), table.of(ALICE, 2), table.of(ALICE, 1, 2)) == ("g", "h", "")
    table.assigned(ALICE, "h", "m", {ID: frozenset({1, 2})})
    assert (table.of(ALICE, 0), table.of(ALICE, 1), table.of(ALICE, 2)) == ("g", None, "h")
    table.saw(ALICE, "i")
    assert table.of(ALICE, 0) is None


def test_members_of_one_group_together(table: Table) -> None:
    """Two consumers of a group with one client id hold what both hold."""
    table.assigned(ALICE, "g", "m", {"t": frozenset({0})})
    table.assigned(ALICE, "g", "n", {"t": frozenset({1})})
    assert table.of(ALICE, 0, 1) == "g"
    table.left(ALICE, "g", ["n"])
    assert table.of(ALICE, 1) == ""
    table.left(ALICE, "g", ["m", "nobody"])
    table.left(ALICE, "g", ["m"])
    assert table.groups(ALICE) == [] and len(table) == 0


def test_forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle are forgotten, those that fetch are not; and the one idle for longest beyond the bound."""
    monkeypatch.setattr(readers, "READERS_MAX", 3)
    table = Table()
    for name in "ghi":
        table.assigned(ALICE, name, "m", {name: frozenset({0})})
    table.now_ms = IDLE_MS - 1
    assert table.matching(ALICE, ["g"], frozenset({0})) == ["g"]
    table.saw(BOB, "j")
    assert table.groups(ALICE) == ["g", "i"] and len(table) == 3
    table.now_ms = IDLE_MS + 1
    assert table.groups(ALICE) == ["g"]
    table.now_ms = 3 * IDLE_MS
    assert table.groups(ALICE) == [] and len(table) == 0


def test_groups_of_one_client_have_a_bound(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks where a group stands names it: those that it has joined stay, as far as there is room.

    It makes room of its own, also where no client has any.
    """
    monkeypatch.setattr(readers, "CLIENT_GROUPS_MAX", 2)
    table.saw(ALICE, "mine", "m")
    for name in "ghi":
        table.saw(ALICE, name)
    table.saw(BOB, "g")
    assert (table.groups(ALICE), table.groups(BOB)) == (["mine", "i"], ["g"])
    for name in "jk":
        table.saw(ALICE, name, "m")
    assert table.groups(ALICE) == ["j", "k"] and len(table) == 3
    monkeypatch.setattr(readers, "READERS_MAX", 3)
    table.saw(ALICE, "l")
    assert (table.groups(ALICE), table.groups(BOB)) == (["k", "l"], ["g"])


class Unseen(dict[str, Any]):
    """Members at whom nobody may look."""

    def __len__(self) -> int:
        raise AssertionError


def test_a_group_that_makes_room_is_not_looked_for(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may have joined as many as it may act for, and name thousands by one request."""
    monkeypatch.setattr(readers, "CLIENT_GROUPS_MAX", 3)
    for name in "abc":
        table.saw(ALICE, name, "m")
    for group in table._clients[ALICE].values():
        group.members = Unseen(group.members)
    for name in "defg":
        table.saw(ALICE, name)
    assert table.groups(ALICE) == ["b", "c", "g"]


def test_a_member_that_ends_without_a_word(table: Table) -> None:
    """As a static one that begins again, under another name: what the former one read ends after a while."""
    for name, part in (("former", 0), ("m", 1)):
        table.saw(ALICE, "g", name)
        table.assigned(ALICE, "g", name, {"t": frozenset({part})})
    for _ in range(3):
        assert table.of(ALICE, 0) == "g"
        table.now_ms += IDLE_MS / 2
        table.saw(ALICE, "g", "m")
    assert (table.of(ALICE, 0), table.of(ALICE, 1)) == ("", "g")
    assert table.wanted("alice", "g", ["t"]) == {1}
    # Nor does one stay that the group has named, and that was not heard of again (KIP-848).
    table.saw(ALICE, "g")
    table.assigned(ALICE, "g", "later", {"t": frozenset({2})})
    table.now_ms += IDLE_MS - 1
    table.saw(ALICE, "g", "m")
    table.now_ms += 2
    table.saw(ALICE, "g", "m")
    assert table.wanted("alice", "g", ["t"]) == {1}


def test_too_many_members(table: Table) -> None:
    """Those that are not told apart may read anything."""
    for number in range(MEMBERS_MAX):
        table.assigned(ALICE, "g", f"m{number}", {"t": frozenset({0})})
    table.saw(ALICE, "g", "one more")
    assert table.of(ALICE, 7) == ""
    table.assigned(ALICE, "g", "one more", {"t": frozenset({1})})
    assert table.of(ALICE, 7) == "g"
    # Nor does what one of the others is told later say what that one reads.
    table.assigned(ALICE, "g", "m0", {"t": frozenset({0})})
    assert table.of(ALICE, 7) == "g"


def test_assignments_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a member beyond it nobody knows what it reads; what is forgotten makes room."""
    monkeypatch.setattr(readers, "PARTS_MAX", 10)
    table = Table()
    many = {"t": frozenset(range(9))}
    table.assigned(ALICE, "g", "m", many)
    table.assigned(ALICE, "g", "m", many)
    table.assigned(ALICE, "h", "m", {"u": frozenset({0})})
    assert table.matching(ALICE, ["x"], frozenset({0})) == ["h"]
    table.left(ALICE, "g", ["m"])
    table.assigned(ALICE, "h", "m", {"u": frozenset({0})})
    assert table.matching(ALICE, ["x"], frozenset({0})) == []
    assert table.matching(ALICE, ["u"], frozenset({0})) == ["h"]


def test_its_version(table: Table) -> None:
    """It counts groups that come and go, not what they do."""
    table.saw(ALICE, "g", "m")
    before = table.version
    table.assigned(ALICE, "g", "m", {"t": frozenset({0})})
    assert table.version == before
    table.left(ALICE, "g", ["m"])
    assert table.version > before
