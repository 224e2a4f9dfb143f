"""Groups that look alike are told apart by offsets; until then a fetch may be of each."""

import pytest

from enforcer.kafka.groups import trails, whose
from enforcer.kafka.groups.readers import Client
from enforcer.kafka.groups.trails import KEPT_MS, TRAIL_MAX, Trail
from enforcer.kafka.groups.whose import BEGIN_MS, ENDED_MS, HUNTED_MS, LEFT_MS, SETTLED_MS, UNREAD_MS, Whose

SAME = Client("alice", "10.0.0.1", "rdkafka")
OTHER = SAME._replace(client_id="mine")
T = "persistent://public/default/t"
SLOW, FREE = "slow", "free"


class Scene(Whose):
    """One proxy's conclusions, with a clock; the group `slow` has a limit."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.count = 0
        self.alone = False
        super().__init__(
            1_000, lambda topic, group: group.startswith(SLOW), lambda: self.alone, lambda: self.now_ms
        )

    def joins(self, group: str, client: Client = SAME, *parts: int) -> None:
        """A member is told to read partitions, 0 if none are named."""
        self.readers.assigned(client, group, f"{group}-m", {"t": frozenset(parts or (0,))})
        self.reads(client.user, group, T)

    def connection(self) -> Trail:
        """A new one."""
        self.count += 1
        return Trail(SAME, self.count)

    def fetches(self, trail: Trail, offset: int, client: Client = SAME, part: int = 0) -> set[str]:
        """The groups that a fetch may be of."""
        trail.client = client
        trail.asked(T, [(part, offset)], self.now_ms)
        return set(self.of(client, trail, T, ["t"], [part])[0])

    def gets(self, trail: Trail, end: int, part: int = 0) -> None:
        """A connection is delivered up to an offset."""
        had = trail.of(T).get(part)
        trail.had(T, part, 0 if had is None else had.end, end)

    def commits(self, group: str, offset: int, part: int = 0) -> None:
        """A group says where it stands, a moment later."""
        self.now_ms += 10
        self.moved("alice", group, T, part, offset)

    def forgets(self) -> None:
        """Time passes until nothing of connections that have ended is kept."""
        self.now_ms += KEPT_MS
        self.trails.forget(0.0)

    def settles(self) -> None:
        """Time enough passes to judge what was committed."""
        self.now_ms += SETTLED_MS
        self.look()


@pytest.fixture
def scene() -> Scene:
    """Two groups of one client id read one partition."""
    found = Scene()
    found.joins(SLOW)
    found.joins(FREE)
    return found


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
    a, b = scene.connection(), scene.connection()
    for trail in (a, b):
        scene.fetches(trail, 0)
        scene.gets(trail, 100)
    for group, offset in ((SLOW, 100), (FREE, 100), (FREE, 7_000)):
        scene.commits(group, offset)
        assert scene.fetches(a, 100) == scene.fetches(b, 100) == {SLOW, FREE}


def test_an_offset_that_was_committed_before_a_connection_began_tells_nothing(scene: Scene) -> None:
    """Its consumer may have moved there."""
    a = scene.connection()
    scene.fetches(a, 0)
    scene.gets(a, 500)
    scene.commits(SLOW, 300)
    b = scene.connection()
    assert scene.fetches(b, 9_000) == {SLOW, FREE}
    scene.gets(b, 9_100)
    assert scene.fetches(b, 9_100) == {SLOW, FREE}


def test_another_ones_trail_is_needed(scene: Scene) -> None:
    """A made-up offset frees nobody."""
    a = scene.connection()
    scene.fetches(a, 0)
    scene.gets(a, 500)
    scene.commits(SLOW, 10**9)
    assert scene.fetches(a, 500) == {SLOW, FREE}


def test_who_seemed_to_be_one_groups_alone_is_not_ruled_out_by_another_such() -> None:
    """As at two proxies, one of which hears later of the other group; commits tell."""
    scene = Scene()
    scene.joins(SLOW)
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
    scene = Scene()
    scene.alone = alone
    scene.joins(SLOW)
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
    scene = Scene()
    scene.joins(SLOW)
    assert scene.fetches(scene.connection(), 0, SAME._replace(host="10.0.0.9")) == {SLOW}
    scene.joins(FREE, SAME._replace(host="10.0.0.9"))
    assert scene.fetches(scene.connection(), 0, SAME._replace(host="10.0.0.9")) == {FREE}


def test_a_group_that_fetches_under_another_client_id() -> None:
    """It has no reader of its own, so each unknown one may be it, until there is one."""
    scene = Scene()
    scene.joins(SLOW)
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
    scene = Scene()
    scene.joins(SLOW)
    own, new = scene.connection(), scene.connection()
    scene.fetches(own, 0)
    scene.gets(own, 100)
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


def test_nobody_of_another_principal() -> None:
    """Whose group it is was proven."""
    scene = Scene()
    scene.joins(SLOW)
    assert scene.fetches(scene.connection(), 0, OTHER._replace(user="bob")) == set()


def test_a_decoy_is_found_by_what_is_committed() -> None:
    """The fetching client id is that of a free group; what it was delivered another commits, twice."""
    scene = Scene()
    scene.joins(SLOW, OTHER)
    scene.joins(FREE)
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


def test_who_is_alone_need_not_wait_for_others() -> None:
    """It judges at once."""
    scene = Scene()
    scene.alone = True
    scene.joins(SLOW, OTHER)
    scene.joins(FREE)
    a, decoy = scene.connection(), scene.connection()
    scene.fetches(decoy, 0, OTHER)
    scene.fetches(a, 0)
    for offset in (5_000, 6_000):
        assert scene.fetches(a, offset) == {FREE}
        scene.commits(SLOW, offset)
    assert scene.fetches(a, 6_000) == {FREE, SLOW}


@pytest.mark.parametrize("client", [OTHER, SAME])
def test_what_a_decoy_only_asks_for_explains_nothing(client: Client) -> None:
    """Neither ahead of what is committed, nor a little before each time; what it was delivered must join."""
    for ahead in (True, False):
        scene = Scene()
        scene.alone = True
        scene.joins(SLOW, Client("alice", "10.0.0.1", "commits"))
        scene.joins(FREE)
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
    a, b = scene.connection(), scene.connection()
    for trail, end in ((a, 300), (b, 200)):
        scene.fetches(trail, 0)
        scene.gets(trail, end)
    scene.commits(FREE, 300)
    assert scene.fetches(b, 200) == {SLOW}
    scene.settles()
    assert scene.fetches(a, 300) == {FREE}
    for offset in (8_000, 9_000):
        scene.gets(a, offset)
        scene.commits(SLOW, offset)
        scene.settles()
    assert scene.fetches(a, 9_000) == {SLOW, FREE}


def test_so_many_that_have_ended_are_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more the one that ended first is forgotten."""
    monkeypatch.setattr(trails, "KEPT_MAX", 2)
    ended = [scene.connection() for _ in range(3)]
    for each in ended:
        scene.fetches(each, 0)
        scene.trails.leave(each)
    assert list(scene.trails.on(T, "alice")) == ended[1:]


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them nothing is told apart, or judged."""
    scene = Scene()
    scene.joins(SLOW)
    scene.joins(FREE)
    a, b = scene.connection(), scene.connection()
    a.asked(T, ((part, 0) for part in range(1, TRAIL_MAX + 1)), scene.now_ms)
    for trail, end in ((a, 200), (b, 300)):
        scene.fetches(trail, 0)
        scene.gets(trail, end)
    scene.commits(FREE, 300)
    assert scene.fetches(a, 200) == {SLOW, FREE}
    monkeypatch.setattr(whose, "PENDING_MAX", 0)
    monkeypatch.setattr(whose, "HUNTED_MAX", 1)
    for offset in (150, 160):
        scene.commits("slow-9", offset)
        scene.settles()
    assert not scene.is_hunted("alice", "slow-9", T)
    for group in ("slow-1", "slow-2"):
        for _ in range(2):
            scene._suspect(("alice", group, T), scene.now_ms + 1)
    assert not scene.is_hunted("alice", "slow-1", T) and scene.is_hunted("alice", "slow-2", T)
    monkeypatch.setattr(whose, "GROUPS_OF_TOPIC_MAX", 1)
    scene.reads("bob", "slow-1", T)
    scene.reads("bob", "slow-2", T)
    assert list(scene._limited_groups["bob", T]) == ["slow-1"]
    # Who is hunted has its place all the same, and where there is no room for the suspected all are.
    scene._suspect(("bob", "slow-3", T), scene.now_ms + 1)
    assert list(scene._limited_groups["bob", T]) == ["slow-1", "slow-3"]


def test_what_is_found_of_a_client_of_its_own_stays_until_another_groups_reader_ends() -> None:
    """Else each Fetch would look through all limited groups of its topics."""
    scene = Scene()
    scene.joins(SLOW)
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


def test_what_nobody_was_seen_to_read_is_looked_for_at_all() -> None:
    """Also at a connection of which was found before whose it is."""
    scene = Scene()
    scene.joins(SLOW, OTHER)
    scene.joins(FREE)
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
    scene = Scene()
    scene.alone = alone
    scene.now_ms += BEGIN_MS
    scene.joins(SLOW, OTHER)
    scene.joins(FREE)
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
    scene = Scene()
    scene.alone = True
    scene.joins(SLOW)
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
    scene = Scene()
    scene.alone = True
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
    scene = Scene()
    scene.alone = alone
    scene.joins(SLOW, OTHER)
    scene.joins(FREE)
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
