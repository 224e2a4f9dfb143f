"""Which topics are blocked, by which decision, for how long, and what is logged of it."""

from collections.abc import Mapping
from typing import Any

import pytest
from backlog_kit import EXCEPTION, HOLD, decision, quota
from mutation_kit import EPOCH_MS, Desk
from sample_kit import sample_of

from benchmarks.kit.lone_proxy import enforce
from enforcer.laws.backlog.block import Block, acts, block_of
from enforcer.laws.backlog.blocks import FORGET_MS, Blocks
from streaming.contract.backlog.actions import backlog_action
from streaming.policy.policy_set import PolicySet

TOPIC = "persistent://acme/orders/t1"
PATH = f"topics.{TOPIC}"
MINUTE = 60_000


class World:
    """Blocks by a clock and policies of the test."""

    def __init__(self, **settings: Any) -> None:
        self.desk = Desk(**settings)
        self.policies = self.desk.context.policies
        self.blocks = Blocks(self.desk.context)
        self.woken = 0

    def limit(self, path: str = PATH, value: Mapping[str, Any] | None = None) -> None:
        """A policy is in force from now on."""
        enforce(self.policies, self.desk.wall_ms, {path: value})
        self.blocks.look()

    def say(self, size: float, topic: str = TOPIC, *, ago_ms: int = 0, **more: Any) -> None:
        """A decision comes."""
        self.blocks.take([decision(topic, size, ts=self.desk.wall_ms - ago_ms, **more)])

    @property
    def block(self) -> Block | None:
        """What stands in the way of the topic's producers."""
        return self.blocks.block(TOPIC)

    def meet(self) -> None:
        """A request meets it."""
        assert self.block is not None
        self.blocks.began(self.block)

    def wait(self) -> None:
        """Somebody waits."""
        self.blocks.wait(self.wake)

    def wake(self) -> None:
        """They are told."""
        self.woken += 1

    def pass_ms(self, count: int) -> None:
        """Time goes on, and is looked at."""
        self.desk.pass_ms(count)
        self.blocks.look()

    def steps(self) -> list[tuple[str, str, str]]:
        """What was logged: step, quota type and reason."""
        found = [backlog_action(event) for _, event in self.desk.events]
        return [(said.step, said.quota_type, said.reason) for said in found]

    def metric(self, name: str, **labels: str) -> float:
        """Of blocked producers."""
        return sample_of(self.desk.metrics.registry, f"weir_producer_{name}", labels)


@pytest.fixture
def world() -> World:
    """With a quota of size that holds."""
    made = World()
    made.limit(value=quota())
    return made


def test_a_mistake_at_one_topic_leaves_the_others_to_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers stayed blocked whose quota was gone, until something else changed."""
    other = TOPIC.replace("t1", "t2")
    world.limit(f"topics.{other}", quota())
    for topic in (TOPIC, other):
        world.say(6_000, topic)
    world.meet()
    enforce(world.policies, world.desk.wall_ms, {PATH: None, f"topics.{other}": None})
    with monkeypatch.context() as patched, pytest.raises(ValueError):
        patched.setattr(world.blocks, "_send_action", lambda *_, **__: int("none"))
        world.blocks.look()
    world.wait()
    world.blocks.look()
    assert not world.blocks.active and world.woken == 1


def test_beyond_is_blocked_and_the_first_decision_inside_lifts(world: World) -> None:
    """Exactly the limit is inside; whoever waits is told."""
    world.say(5_000)
    assert world.block is None and not world.blocks.active
    world.say(5_001)
    assert world.block is not None and world.block.holds and world.blocks.active
    assert world.metric("blocks", quota_type="size", policy=HOLD) == 1
    world.wait()
    world.desk.pass_ms(1_000)
    world.say(10_240)
    assert world.woken == 0
    world.say(5_000)
    assert world.block is None and not world.blocks.active and world.woken == 1
    assert world.metric("blocks", quota_type="size", policy=HOLD) == 0


def test_whoever_waits_no_more_is_not_told(world: World) -> None:
    """A connection that has gone."""
    world.say(6_000)
    world.wait()
    world.blocks.stop_waiting(world.wake)
    world.say(0)
    assert world.woken == 0


def test_only_what_may_be_carried_out_blocks() -> None:
    """Not without `actions`, nor an eviction, nor the broker's default."""
    world = World()
    world.say(10**9)
    world.limit(value=quota(actions=False))
    world.say(10**9)
    world.limit(value=quota("consumer_backlog_eviction"))
    world.say(10**9)
    world.limit(value=None)
    world.limit("broker", {"backlogQuotaDefaultLimitBytes": 5})
    world.say(10**9)
    assert world.block is None and not world.blocks.standing_ms
    world.limit("namespaces.acme/orders", quota())
    assert world.blocks.standing_ms
    world.say(10**9)
    assert world.block is not None


def test_tracked_nobody_is_blocked(world: World) -> None:
    """The block ends with the mode's change, and begins again with the next decision, new or repeated."""
    for mode in ("track", "off"):
        enforce(world.policies, world.desk.wall_ms, {"mode": "enforce"})
        world.say(10**9)
        assert world.block is not None
        enforce(world.policies, world.desk.wall_ms, {"mode": mode})
        world.blocks.look()
        assert world.block is None
        world.say(10**9)
        assert world.block is None


def test_a_partition_has_the_quota_of_its_topic(world: World) -> None:
    """Each for itself."""
    world.say(6_000, f"{TOPIC}-partition-1")
    assert world.blocks.block(f"{TOPIC}-partition-1") is not None
    assert world.block is None


def test_policies_lift_and_begin_by_the_newest_numbers(world: World) -> None:
    """Raised, removed, set to -1: at once; lowered: at once for what is near, else with the next decision."""
    world.say(6_000)
    for raised in (quota(limit=6_000), None, quota(limit=-1), quota(actions=False)):
        world.limit(value=raised)
        assert world.block is None
        world.limit(value=quota())
        world.say(6_000)
        assert world.block is not None
    world.limit(value=quota(limit=11_000))
    assert world.block is None
    world.limit(value=quota(limit=5_999))
    assert world.block is not None and world.block.limit == 5_999


def test_exception_wins_over_hold() -> None:
    """Whichever quota it is of; an age that is not known, and an age limit of 0, are none."""
    for size, age, expected in ((HOLD, EXCEPTION, "time"), (EXCEPTION, HOLD, "size"), (HOLD, HOLD, "size")):
        world = World()
        quotas = {
            "destination_storage": {"limitSize": 5_000, "policy": size, "actions": True},
            "message_age": {"limitTime": 90, "policy": age, "actions": True},
        }
        world.limit(value={"backlogQuotaMap": quotas})
        world.say(6_000, age=91)
        assert world.block is not None and world.block.quota_type == expected
    world.say(6_000, age=-1)
    assert world.block is not None and world.block.quota_type == "size"
    policies = PolicySet(
        {PATH: {"backlogQuotaMap": {"message_age": {"limitTime": 0, "policy": HOLD, "actions": True}}}}
    )
    assert block_of(policies, TOPIC, 0, 100, "b")[0] is None and acts(policies)


def test_messages_name_topic_quota_size_and_limit() -> None:
    """As producers are told."""
    block = Block(topic=TOPIC, quota_type="size", policy=EXCEPTION, limit=5_000, used=10_240.0, decision="b")
    assert block.message == (
        f"Cannot produce to {TOPIC}: its backlog of 10,240 bytes exceeds the quota destination_storage"
        " of 5,000 bytes (producer_exception)"
    )
    block = Block(topic=TOPIC, quota_type="time", policy=HOLD, limit=3_600, used=7_200, decision="b")
    assert block.message == (
        f"Cannot produce to {TOPIC}: its oldest unread message of 7,200 s exceeds the quota message_age of"
        " 3,600 s (producer_request_hold)"
    )


def test_older_decisions_are_passed_over(world: World) -> None:
    """Of a topic that is blocked, and of one that is inside; the same again is not older."""
    world.say(6_000)
    world.say(0, ago_ms=1)
    assert world.block is not None
    world.say(0)
    world.say(6_000, ago_ms=1)
    assert world.block is None
    world.say(6_000)
    assert world.block is not None


def test_a_block_is_logged_once_it_meets_a_request_and_once_it_ends(world: World) -> None:
    """However often the decision is repeated; a block that nobody met is not spoken of."""
    world.say(6_000)
    world.say(0)
    assert world.steps() == []
    for _ in range(3):
        world.say(6_000)
        world.meet()
    first = world.desk.events[0][1]
    assert world.desk.events[0][0] == TOPIC
    assert first["id"].endswith("/size/p1-1795166668375/begun")
    assert first["limit"] == 5_000 and first["how"] == "hold"
    world.say(0)
    assert world.steps() == [("begun", "size", ""), ("ended", "size", "inside")]
    assert world.desk.events[1][1]["id"] == first["id"].removesuffix("begun") + "ended"
    assert world.metric("block_actions_total", step="begun", result="written") == 1


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda world: world.limit(value=None), "policy"),
        (lambda world: world.limit(value=quota(EXCEPTION)), "other_quota"),
        (lambda world: world.pass_ms(MINUTE + 1), "stale"),
        (lambda world: world.blocks.stop(), "stop"),
    ],
)
def test_the_log_says_why_a_block_ended(world: World, end: Any, reason: str) -> None:
    """As docs/backlog/producers.md lists it."""
    world.say(6_000)
    world.meet()
    end(world)
    assert world.steps()[-1] == ("ended", "size", reason)


def test_what_cannot_be_logged_is_counted(world: World) -> None:
    """A full queue, and a Kafka that never takes it."""
    world.say(6_000)
    world.desk.full = True
    world.meet()
    assert world.metric("block_actions_total", step="begun", result="dropped") == 1
    world.desk.full, world.desk.acknowledges = False, False
    world.say(0)
    world.desk.acknowledge(stands=False)
    assert world.metric("block_actions_total", step="ended", result="failed") == 1


def test_a_decision_grows_too_old_by_its_own_time() -> None:
    """After three checks though it is repeated; counted once; with `keep` the block stays."""
    for stale, left in (("open", False), ("keep", True)):
        world = World(backlog_stale=stale)
        world.limit("broker", {"backlogQuotaCheckIntervalInSeconds": 30})
        world.limit(value=quota())
        world.say(6_000)
        begun_ms = world.desk.wall_ms
        for _ in range(6):
            world.pass_ms(15_000)
            world.say(6_000, ago_ms=world.desk.wall_ms - begun_ms)
        assert world.block is not None
        world.pass_ms(1)
        world.say(6_000, ago_ms=world.desk.wall_ms - begun_ms)
        world.pass_ms(15_000)
        assert (world.block is not None) == left
        assert world.metric("block_stale_total", outcome=stale) == 1
        world.say(6_000)
        assert world.block is not None


def test_a_check_of_seconds_is_waited_for_a_minute() -> None:
    """Three checks of one second are no time at all."""
    world = World()
    world.limit("broker", {"backlogQuotaCheckIntervalInSeconds": 1})
    world.limit(value=quota())
    world.say(6_000, ttl_ms=10 * MINUTE)
    world.pass_ms(MINUTE)
    assert world.block is not None
    world.pass_ms(1)
    assert world.block is None


def test_a_decision_that_is_not_repeated_ends_with_its_life_time() -> None:
    """As when the job is down; what was read back has a part of it left; an hour later it is forgotten."""
    for stale in ("open", "keep"):
        world = World(backlog_stale=stale)
        world.limit(value=quota())
        world.say(6_000, ttl_ms=20_000)
        world.pass_ms(20_000)
        assert world.block is not None
        world.pass_ms(1)
        assert (world.block is None) == (stale == "open")
        world.pass_ms(FORGET_MS)
        assert world.block is None
        # Nothing is left of it: an older decision is news.
        world.say(6_000, ago_ms=FORGET_MS + MINUTE // 2)
        assert (world.block is None) == (stale == "open")


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those near make room for those beyond; what finds none is counted, and not blocked."""
    monkeypatch.setattr("enforcer.laws.backlog.blocks.BACKLOG_TOPICS_MAX", 2)
    world = World()
    world.limit("namespaces.acme/orders", quota())
    topics = [f"{TOPIC}{number}" for number in range(4)]
    world.say(3_000, topics[0])
    world.say(6_000, topics[1])
    world.say(3_000, topics[2])
    assert world.metric("block_dropped_total") == 1
    world.say(6_000, topics[2])
    assert world.metric("block_dropped_total") == 2
    assert [world.blocks.block(topic) is not None for topic in topics] == [False, True, True, False]
    world.say(6_000, topics[3])
    assert world.blocks.block(topics[3]) is None and world.metric("block_dropped_total") == 3
    # One that is inside makes room; those near are forgotten after an hour.
    world.say(0, topics[1])
    world.say(3_000, topics[0])
    world.pass_ms(FORGET_MS + MINUTE + 1)
    world.say(6_000, topics[3])
    world.say(6_000, topics[1])
    assert world.metric("block_dropped_total") == 3


def test_it_is_not_blocked_without_decisions(world: World) -> None:
    """Nor by what is known of another topic."""
    world.say(6_000, f"{TOPIC}2")
    world.limit("namespaces.acme/orders", quota())
    assert world.block is None
    assert world.desk.wall_ms == EPOCH_MS
