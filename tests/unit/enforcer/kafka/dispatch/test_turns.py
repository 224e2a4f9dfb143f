"""Groups at one topic's limit, simulated: what each gets where one could take all of it alone."""

from collections.abc import Sequence

import pytest
from counted_kit import Counted
from each_kit import each
from fetch_rig import ADDRESS, BROKER, CLIENT, Rig, World, counted_looks, full, two_waiting
from kafka.protocol.consumer import FetchRequest
from kafka_kit import decode
from traffic_kit import batch, fetch_request

from enforcer.kafka.dispatch.fetches import Plan
from enforcer.kafka.groups.readers import Client

STEP_MS = 5
SECONDS = 20


class Group:
    """A group's one consumer, which asks again as soon as it has an answer.

    Args:
        world: what it shares with others.
        name: the group's, and its client id.
        entry: messages of each batch.
        late_ms: until it asks again.
        answer_ms: until the broker answers it.
    """

    def __init__(self, world: World, name: str, entry: int, late_ms: int, answer_ms: int) -> None:
        self.rig, self.name, self.late_ms, self.answer_ms = Rig(world), name, late_ms, answer_ms
        self.client: Client = CLIENT._replace(client_id=name)
        self.entry, self.batch = entry, batch(entry)
        self.at_ms, self.got = 0.0, 0
        self._plan: Plan | None = None
        world.desk.readers.assigned(self.client, name, "m", {"t": frozenset({0})})

    def step(self) -> None:
        """It asks, or gets its answer."""
        world = self.rig.world
        if world.now_ms < self.at_ms and not self.rig.woken:
            return
        self.rig.woken = 0
        if self._plan is not None:
            self._read(self._plan)
            self._plan, self.at_ms = None, world.now_ms + self.late_ms
            return
        plan = self.rig.fetches.plan(*fetch_request(12, {"t": 1}), self.client, ADDRESS)
        if plan is None:
            self.at_ms = world.now_ms + self.rig.pauses[-1]
        elif plan.frame:
            self._plan, self.at_ms = plan, world.now_ms + self.answer_ms

    def _read(self, plan: Plan) -> None:
        request = decode(FetchRequest, 12, plan.frame)
        most = request.topics[0].partitions[0].partition_max_bytes
        before = len(self.rig.world.counted.delivered)
        self.rig.got(plan, {"t": [self.batch * max(1, most // len(self.batch))]}, high=10**6)
        self.got += sum(each.msgs for each in self.rig.world.counted.delivered[before:])


def rates(
    limits: dict[str, int], topic: int, entry: int = 1, late_ms: Sequence[int] = (), swapped: bool = False,
    answer_ms: Sequence[int] = (),
) -> list[float]:  # fmt: skip
    """What groups get in a second, each with a limit of its own (0: none) under one of the topic.

    `swapped`: the arithmetic came after what all connections share.
    """
    topics = {full("t"): (topic, 0)}
    subscriptions = {(full("t"), name): (rate, 0) for name, rate in limits.items()}
    world = World(topics=topics, subscriptions=subscriptions)
    if swapped:
        world.counted = Counted(lambda: world.now_ms, topics=topics, subscriptions=subscriptions)
        world.desk.dispatch = world.counted  # type: ignore[assignment]
    late, answers = late_ms or [0] * len(limits), answer_ms or [STEP_MS] * len(limits)
    groups = [Group(world, name, entry, *its) for name, *its in zip(limits, late, answers, strict=True)]
    begun, had = world.now_ms, [0] * len(groups)
    while world.now_ms < begun + 1_000 * (SECONDS + 3):
        world.now_ms += STEP_MS
        if world.now_ms == begun + 3_000:
            had = [group.got for group in groups]
        for group in groups:
            group.step()
    assert {delivered.place[0] for delivered in world.counted.delivered} == {BROKER}
    for group in groups:
        group.rig.fetches.close()
    assert len(world.desk.lines) == 0
    return [(group.got - before) / SECONDS for group, before in zip(groups, had, strict=True)]


@each("answer_ms", [(STEP_MS, STEP_MS), (STEP_MS, 50), (50, STEP_MS)])
@each("late_ms", [(0, 0), (0, 30), (30, 0)])
@each("order", [("hungry", "small"), ("small", "hungry")])
def test_a_group_with_less_of_its_own_beside_a_hungry_one(
    order: tuple[str, str], late_ms: tuple[int, int], answer_ms: tuple[int, int]
) -> None:
    """It gets its ten, the other one the rest of forty: in each period, whoever is answered first."""
    limits = {name: {"small": 10, "hungry": 0}[name] for name in order}
    found = dict(zip(order, rates(limits, 40, 1, late_ms, answer_ms=answer_ms), strict=True))
    assert found["small"] == pytest.approx(10, rel=0.1)
    assert sum(found.values()) == pytest.approx(40, rel=0.02)


def test_limits_of_their_own_that_are_too_much_together() -> None:
    """Each gets what is fair: the small one all, the others the same of the rest."""
    assert rates({"small": 5, "one": 30, "other": 0}, 40) == pytest.approx([5, 17.5, 17.5], rel=0.1)


def test_they_stand_in_the_lines_in_which_is_seen_what_others_take() -> None:
    """In whatever arithmetic: in lines apart the first took all, while it had anything to read."""
    assert rates({"one": 0, "other": 0}, 10, swapped=True) == pytest.approx([5, 5], rel=0.1)


def test_more_groups_than_messages() -> None:
    """In turns, whoever waits for longest first."""
    found = rates({f"g{number}": 0 for number in range(8)}, 4)
    assert sum(found) == pytest.approx(4, rel=0.05) and min(found) >= 0.3


def test_what_is_held_is_not_asked_again_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many topics of a request; until somebody wakes the connection, or limits change."""
    world = World(topics={full(f"t{number}"): (10, 0) for number in range(50)})
    rig, asked = Rig(world), counted_looks(world, monkeypatch)
    topics = {f"t{number}": 1 for number in range(50)}
    rig.gets(topics, {name: [batch(10)] for name in topics})
    assert rig.plan(topics) is None
    for change, expected in ((None, 0), (rig.fetches.claims.wake, 50), (None, 0), (world.change, 50)):
        asked.clear()
        if change is not None:
            change()
        # Another request for the same: what is held is known by topic.
        assert rig.plan(topics, max_bytes=(1 << 20) + expected) is None
        assert len(asked) == expected
    asked.clear()
    world.now_ms += 1_000
    assert rig.plan(topics) is not None and len(asked) == 50
    rig.fetches.close()


def test_a_decision_ends_a_wait() -> None:
    """Of several proxies' part more may be left than was thought: who is in front looks again."""
    world, first, second = two_waiting()
    world.counted.lines.wake((BROKER, full("t"), "g"))
    assert (first.woken, second.woken) == (0, 0)
    world.counted.lines.wake((BROKER, full("t")))
    assert (first.woken, second.woken) == (1, 0)


def test_batches() -> None:
    """Whole ones go out: a small limit is passed and paid for, and nobody loses by that in the long run."""
    small, hungry = rates({"small": 10, "hungry": 0}, 40, entry=6)
    assert small == pytest.approx(10, rel=0.15)
    assert small + hungry == pytest.approx(40, rel=0.05)
