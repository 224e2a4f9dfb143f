"""Who commits what others have read is found; what is kept for that ends, and has bounds."""

import pytest
from group_finder_kit import FREE, OTHER, SAME, SLOW, Scene, T

from enforcer.kafka.groups import group_finder, trails
from enforcer.kafka.groups.group_finder import BEGIN_MS, HUNTED_MS, LEFT_MS, UNREAD_MS
from enforcer.kafka.groups.readers import Client
from enforcer.kafka.groups.trails import TRAIL_MAX


@pytest.fixture
def scene() -> Scene:
    """Two groups of one client id read one partition."""
    return Scene(SLOW, FREE)


def test_a_decoy_is_found_by_what_is_committed() -> None:
    """The fetching client id is that of a free group; what it was delivered another commits, twice."""
    scene = Scene(FREE)
    scene.joins(SLOW, OTHER)
    a, decoy = scene.connection(), scene.connection()
    # While nobody reads for it, everybody may.
    assert scene.fetches(a, 0) == {FREE, SLOW}
    assert scene.fetches(decoy, 0, OTHER) == {SLOW} and scene.fetches(a, 0) == {FREE}
    for offset in (5_000, 6_000):
        assert not scene.is_hunted("alice", SLOW, T) and scene.fetches(a, offset) == {FREE}
        scene.commits(SLOW, offset)
        scene.settles()
    assert scene.is_hunted("alice", SLOW, T)
    assert scene.fetches(a, 6_000) == {FREE, SLOW}
    for offset in (100, 6_000, 6_001):
        assert scene.fetches(scene.connection(), offset) == {FREE, SLOW}
    scene.now_ms += HUNTED_MS
    scene.look()
    assert scene.fetches(a, 6_000) == {FREE}


@pytest.mark.parametrize("client", [OTHER, SAME])
def test_what_a_decoy_only_asks_for_explains_nothing(client: Client) -> None:
    """Neither ahead of what is committed, nor a little before each time; what it was delivered must join."""
    for ahead in (True, False):
        scene = Scene(FREE, alone=True)
        scene.joins(SLOW, Client("alice", "10.0.0.1", "commits"))
        a, end = scene.connection(), 0
        free = 0
        for _ in range(20):
            decoy = scene.connection()
            scene.fetches(decoy, 10**6 if ahead else end, Client("alice", "10.0.0.1", "commits"))
            free += SLOW not in scene.fetches(a, end, client)
            end += 590
            if SLOW in a.groups[T]:
                scene.gets(a, end)
            if not ahead:
                scene.fetches(decoy, end - 10, decoy.client)
                decoy.had(T, 0, end - 10, end)
            scene.commits(SLOW, end)
            scene.now_ms += 100
        assert free <= 3


def test_what_is_found_ends_when_it_was_wrong(scene: Scene) -> None:
    """A group that commits what only another's connection had was read for by that."""
    a, b = scene.delivered(300, 200)
    scene.commits(FREE, 300)
    assert scene.fetches(b, 200) == {SLOW}
    scene.settles()
    assert scene.fetches(a, 300) == {FREE}
    for offset in (8_000, 9_000):
        scene.gets(a, offset)
        scene.commits(SLOW, offset)
        scene.settles()
    assert scene.fetches(a, 9_000) == {SLOW, FREE}


@pytest.mark.parametrize(("bound", "most"), [("KEPT_MAX", 2), ("KEPT_PARTS_MAX", 5)])
def test_so_many_that_have_ended_are_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """Of more, or of more partitions of theirs, the one that ended first is forgotten.

    Clients that come with 10,000 partitions and go, a hundred a second, took 2 GB.
    """
    monkeypatch.setattr(trails, bound, most)
    ended = [scene.connection() for _ in range(3)]
    for each in ended:
        each.asked(T, [(1, 0)], scene.now_ms)
        scene.fetches(each, 0)
        scene.trails.leave(each)
    assert list(scene.trails.on(T, "alice")) == ended[1:]


def test_who_ends_twice_leaves_nothing(scene: Scene) -> None:
    """Its client goes, and when what that sent was carried out its connection too."""
    a = scene.connection()
    scene.fetches(a, 0)
    scene.trails.leave(a)
    scene.forgets()
    scene.trails.leave(a)
    assert not scene.trails.changes


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them nothing is told apart, or judged."""
    scene = Scene(SLOW, FREE)
    a, b = scene.connection(), scene.connection()
    a.asked(T, ((part, 0) for part in range(1, TRAIL_MAX + 1)), scene.now_ms)
    for trail, end in ((a, 200), (b, 300)):
        scene.fetches(trail, 0)
        scene.gets(trail, end)
    scene.commits(FREE, 300)
    assert scene.fetches(a, 200) == {SLOW, FREE}
    monkeypatch.setattr(group_finder, "PENDING_MAX", 0)
    monkeypatch.setattr(group_finder, "HUNTED_MAX", 1)
    for offset in (150, 160):
        scene.commits("slow-9", offset)
        scene.settles()
    assert not scene.is_hunted("alice", "slow-9", T)
    for group in ("slow-1", "slow-2"):
        for _ in range(2):
            scene._suspect(("alice", group, T), scene.now_ms + 1)
    assert not scene.is_hunted("alice", "slow-1", T) and scene.is_hunted("alice", "slow-2", T)
    monkeypatch.setattr(group_finder, "GROUPS_OF_TOPIC_MAX", 1)
    scene.reads("bob", "slow-1", T)
    scene.reads("bob", "slow-2", T)
    assert list(scene._limited_groups["bob", T]) == ["slow-1"]
    # Who is hunted has its place all the same, and where there is no room for the suspected all are.
    scene._suspect(("bob", "slow-3", T), scene.now_ms + 1)
    assert list(scene._limited_groups["bob", T]) == ["slow-1", "slow-3"]
    monkeypatch.setattr(group_finder, "LIMITED_MAX", len(scene._began))
    before = len(scene._limited_groups)
    scene.reads("bob", "slow-1", "persistent://public/default/made-up")
    assert len(scene._limited_groups) == before


def test_what_nobody_was_seen_to_read_is_looked_for_at_all() -> None:
    """Also at a connection of which was found before whose it is."""
    scene = Scene(FREE)
    scene.joins(SLOW, OTHER)
    own, a = scene.connection(), scene.connection()
    scene.fetches(own, 0, OTHER)
    scene.fetches(a, 0)
    before = scene.version
    scene.commits(SLOW, 500)
    scene.settles()
    assert scene.version > before


@pytest.mark.parametrize("alone", [True, False])
def test_who_reads_on_a_connection_for_each_fetch_is_watched(alone: bool) -> None:
    """Though its client acts for a free group, and no fetch of its shows where the one before has read to."""
    scene = Scene(FREE, alone=alone)
    scene.now_ms += BEGIN_MS
    scene.joins(SLOW, OTHER)
    found: list[set[str]] = []
    for offset in range(0, 2_000, 500):
        a = scene.connection()
        found.append(scene.fetches(a, offset))
        if scene.watches(T, "alice"):
            scene.gets(a, offset + 500)
        scene.commits(SLOW, offset + 500)
        scene.trails.leave(a)
        scene.settles()
        scene.trails.forget(0.0)
        scene.now_ms += UNREAD_MS
        scene.look()
    assert found[1:] == [{FREE}, {FREE}, {FREE, SLOW}]


def test_who_has_read_what_its_group_committed_is_watched_no_more() -> None:
    """As after a start of the proxy, where a group is told where it stands before it reads on from there."""
    scene = Scene(SLOW, alone=True)
    scene.commits(SLOW, 500)
    assert scene.watches(T, "alice")
    scene.fetches(scene.connection(), 500)
    scene.look()
    assert not scene.watches(T, "alice")
    scene.now_ms += UNREAD_MS
    scene.look()
    assert not scene.watches(T, "alice")


def test_the_end_of_a_connection_and_of_a_group(scene: Scene) -> None:
    """Nothing of them is kept for long."""
    a = scene.connection()
    scene.fetches(a, 0)
    scene.trails.leave(a)
    assert list(scene.trails.on(T, "alice")) == [a]
    scene.forgets()
    assert list(scene.trails.on(T, "alice")) == []
    scene.readers.left(SAME, SLOW, [f"{SLOW}-m"])
    scene.look()
    assert scene.matters(T, "alice")
    scene.now_ms += LEFT_MS
    scene.look()
    assert not scene.matters(T, "alice")


def test_who_leaves_after_each_commit_is_not_forgotten() -> None:
    """Nor does a member that was never seen take its group along."""
    scene = Scene(alone=True)
    scene.readers.saw(SAME, SLOW)
    a = scene.connection()
    scene.fetches(a, 0, OTHER)
    for offset in range(500, 3_000, 500):
        scene.readers.left(SAME, SLOW, ["nobody"])
        scene.commits(SLOW, offset)
        scene.readers.left(SAME, SLOW, [""])
        scene.now_ms += 1_100
        scene.look()
        assert scene.matters(T, "alice") and scene.fetches(a, offset, OTHER) == {SLOW}


@pytest.mark.parametrize("alone", [True, False])
def test_a_connection_that_reads_more_than_is_remembered_is_suspected(alone: bool) -> None:
    """Made-up partitions do not hide what it reads."""
    scene = Scene(FREE, alone=alone)
    scene.joins(SLOW, OTHER)
    own, a = scene.connection(), scene.connection()
    a.asked(T, ((part, 0) for part in range(1, TRAIL_MAX + 1)), scene.now_ms)
    scene.fetches(own, 0, OTHER)
    for offset in (500, 1_000, 1_500):
        scene.fetches(a, offset)
        scene.commits(SLOW, offset)
        scene.settles()
    assert scene.is_hunted("alice", SLOW, T) and scene.fetches(a, 2_000) == {FREE, SLOW}


def test_made_up_topics_take_no_room_of_a_trail() -> None:
    """Beyond the bound none is remembered, and the connection counts for all."""
    scene = Scene()
    a = scene.connection()
    for number in range(3):
        a.asked(f"t{number}", ((part, 0) for part in range(TRAIL_MAX // 2)), scene.now_ms)
        scene.of(SAME, a, f"t{number}", ["t"], [0])
    assert a.topics() == ["t0", "t1"] and list(a.groups) == ["t0", "t1"]
    assert list(scene.trails.on("t9", "alice")) == [a]
    scene.trails.leave(a)
    scene.forgets()
    assert list(scene.trails.on("t9", "alice")) == []
