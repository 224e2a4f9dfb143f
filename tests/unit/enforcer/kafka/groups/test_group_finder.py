"""Groups that look alike are told apart by offsets; until then a fetch may be of each."""

from collections.abc import Iterator

import pytest
from group_finder_kit import FREE, OTHER, SAME, SLOW, Scene, T

from enforcer.kafka.groups.group_finder import ENDED_MS
from enforcer.kafka.groups.trails import Trail


@pytest.fixture
def scene() -> Scene:
    """Two groups of one client id read one partition."""
    return Scene(SLOW, FREE)


def test_who_never_had_an_offset_is_not_the_one_that_commits_it(scene: Scene) -> None:
    """And then the other one is whose is left."""
    a, b = scene.connection(), scene.connection()
    assert scene.fetches(a, 0) == scene.fetches(b, 0) == {SLOW, FREE}
    scene.gets(a, 300)
    scene.gets(b, 200)
    scene.commits(SLOW, 200)
    assert scene.fetches(a, 300) == scene.fetches(b, 200) == {SLOW, FREE}
    scene.commits(FREE, 300)
    assert scene.fetches(b, 200) == {SLOW}
    # Others may have news that matters to this.
    assert scene.fetches(a, 300) == {SLOW, FREE}
    scene.settles()
    assert scene.fetches(a, 300) == {FREE}
    # What was found stays, however far the free one goes.
    scene.commits(FREE, 50_000)
    assert (scene.fetches(b, 210), scene.fetches(a, 49_000)) == ({SLOW}, {FREE})


def test_who_stays_unclear_while_both_stand_at_one_place(scene: Scene) -> None:
    """A commit that both had tells nothing, one that neither had either."""
    a, b = scene.delivered(100, 100)
    for group, offset in ((SLOW, 100), (FREE, 100), (FREE, 7_000)):
        scene.commits(group, offset)
        assert scene.fetches(a, 100) == scene.fetches(b, 100) == {SLOW, FREE}


def test_an_offset_that_was_committed_before_a_connection_began_tells_nothing(scene: Scene) -> None:
    """Its consumer may have moved there."""
    scene.delivered(500)
    scene.commits(SLOW, 300)
    b = scene.connection()
    assert scene.fetches(b, 9_000) == {SLOW, FREE}
    scene.gets(b, 9_100)
    assert scene.fetches(b, 9_100) == {SLOW, FREE}


def test_another_ones_trail_is_needed(scene: Scene) -> None:
    """A made-up offset frees nobody."""
    (a,) = scene.delivered(500)
    scene.commits(SLOW, 10**9)
    assert scene.fetches(a, 500) == {SLOW, FREE}


def test_who_seemed_to_be_one_groups_alone_is_not_ruled_out_by_another_such() -> None:
    """As at two proxies, one of which hears later of the other group; commits tell."""
    scene = Scene(SLOW)
    d, c = scene.connection(), scene.connection()
    assert scene.fetches(d, 0) == scene.fetches(c, 0) == {SLOW}
    scene.joins(FREE)
    assert scene.fetches(d, 0) == scene.fetches(c, 0) == {SLOW, FREE}
    scene.gets(c, 200)
    scene.gets(d, 100)
    scene.commits(FREE, 200)
    assert scene.fetches(d, 100) == {SLOW}
    scene.settles()
    assert scene.fetches(c, 200) == {FREE}


@pytest.mark.parametrize("alone", [True, False])
def test_what_was_found_before_a_group_was_known_rules_nobody_out(alone: bool) -> None:
    """The free one had the limited one's client id alone at first, and is looked at again later than that."""
    scene = Scene(SLOW, alone=alone)
    d, c = scene.connection(), scene.connection()
    for trail in (c, d):
        scene.fetches(trail, 0)
        scene.gets(trail, 100)
    scene.commits(SLOW, 100)
    scene.joins(FREE)
    for _ in range(3):
        assert scene.fetches(d, 100) == {SLOW, FREE}


def test_partitions_one_by_one(scene: Scene) -> None:
    """What cannot be told of one keeps all of a connection's fetch unclear, unless it had nothing there."""
    for group in (SLOW, FREE):
        scene.joins(group, SAME, 0, 1)
    a, b = scene.connection(), scene.connection()
    for trail, end in ((a, 300), (b, 200)):
        trail.asked(T, [(1, 0)], scene.now_ms)
        scene.fetches(trail, 0)
        scene.gets(trail, end)
    scene.gets(b, 100, part=1)
    scene.commits(FREE, 300)
    assert set(scene.of(SAME, b, T, ["t"], [0, 1])[0]) == {SLOW, FREE}
    scene.commits(FREE, 150, part=1)
    assert set(scene.of(SAME, b, T, ["t"], [0, 1])[0]) == {SLOW, FREE}
    scene.gets(a, 150, part=1)
    assert set(scene.of(SAME, b, T, ["t"], [0, 1])[0]) == {SLOW}


def test_one_group_is_one_group(scene: Scene) -> None:
    """With a client id of its own no offset matters."""
    scene.joins("slow-2", OTHER)
    a = scene.connection()
    scene.fetches(scene.connection(), 0)
    assert scene.fetches(a, 0, OTHER) == {"slow-2"}
    scene.commits("slow-2", 10**9)
    assert scene.fetches(a, 9, OTHER) == {"slow-2"}


def test_a_host_that_changes_on_the_way() -> None:
    """A client of another address and the same id is taken to be of the groups of that id."""
    scene = Scene(SLOW)
    assert scene.fetches(scene.connection(), 0, SAME._replace(host="10.0.0.9")) == {SLOW}
    scene.joins(FREE, SAME._replace(host="10.0.0.9"))
    assert scene.fetches(scene.connection(), 0, SAME._replace(host="10.0.0.9")) == {FREE}


def test_a_group_that_fetches_under_another_client_id() -> None:
    """It has no reader of its own, so each unknown one may be it, until there is one."""
    scene = Scene(SLOW)
    a, far = scene.connection(), scene.connection()
    assert scene.fetches(a, 0, OTHER) == {SLOW}
    scene.gets(a, 100)
    scene.commits(SLOW, 60)
    assert scene.fetches(a, 100, OTHER) == {SLOW}
    assert scene.fetches(far, 9_000, OTHER) == scene.fetches(far, 59, OTHER) == {SLOW}
    own = scene.connection()
    assert scene.fetches(own, 0) == {SLOW}
    scene.gets(own, 60)
    assert scene.fetches(a, 100, OTHER) == scene.fetches(far, 9_000, OTHER) == set()


def test_who_goes_on_where_one_may_have_ended() -> None:
    """For a moment it may be the same consumer again; then the old connection is there still, or not."""
    scene = Scene(SLOW)
    (own,), new = scene.delivered(100), scene.connection()
    scene.commits(SLOW, 80)
    assert scene.fetches(new, 90, OTHER) == {SLOW}
    for offset in (79, 101):
        assert scene.fetches(scene.connection(), offset, OTHER) == set()
    scene.now_ms += ENDED_MS
    assert scene.fetches(new, 95, OTHER) == set()
    scene.trails.leave(own)
    assert scene.fetches(new, 95, OTHER) == {SLOW} and list(scene.trails.gone) == [own.number]
    scene.fetches(own, 100)
    scene.forgets()
    assert own not in scene.trails.on(T, "alice")


def test_what_a_group_has_read_itself_is_looked_for_nowhere_else() -> None:
    """Nor are all connections of its topic gathered for each offset that it commits."""

    class Unread(dict[Trail, None]):
        def __iter__(self) -> Iterator[Trail]:
            raise AssertionError

    scene = Scene(SLOW)
    scene.delivered(100)
    scene.trails._by_topic[T] = Unread(scene.trails._by_topic[T])
    scene.commits(SLOW, 100)
    scene.settles()
    assert not scene._pending and not scene._unread


def test_nobody_of_another_principal() -> None:
    """Whose group it is was proven."""
    scene = Scene(SLOW)
    assert scene.fetches(scene.connection(), 0, OTHER._replace(user="bob")) == set()


def test_who_is_alone_need_not_wait_for_others() -> None:
    """It judges at once."""
    scene = Scene(FREE, alone=True)
    scene.joins(SLOW, OTHER)
    a, decoy = scene.connection(), scene.connection()
    scene.fetches(decoy, 0, OTHER)
    scene.fetches(a, 0)
    for offset in (5_000, 6_000):
        assert scene.fetches(a, offset) == {FREE}
        scene.commits(SLOW, offset)
    assert scene.fetches(a, 6_000) == {FREE, SLOW}


def test_what_is_found_of_a_client_of_its_own_stays_until_another_groups_reader_ends() -> None:
    """Else each Fetch would look through all limited groups of its topics."""
    scene = Scene(SLOW)
    scene.joins("slow-2", OTHER)
    own, a = scene.connection(), scene.connection()
    scene.fetches(own, 0)
    assert scene.of(OTHER, a, T, ["t"], [0]) == (("slow-2",), True)
    before = scene.version
    scene.trails.leave(own)
    assert scene.version > before
    assert scene.of(OTHER, a, T, ["t"], [0]) == (("slow-2", SLOW), False)
    again = scene.connection()
    scene.fetches(again, 0)
    assert scene.of(OTHER, a, T, ["t"], [0]) == (("slow-2",), True)


def test_topics_without_partitions_are_not_kept(scene: Scene) -> None:
    """A client may name as many as it likes with each request."""
    trail = scene.connection()
    for number in range(3):
        trail.asked(f"{T}{number}", [], scene.now_ms)
    assert trail.topics() == []
    scene.fetches(trail, 0)
    assert trail.topics() == [T]
