"""Which topics take nothing of their producers, by what was decided of their backlogs (docs/contract.md 3.5).

For any protocol: decisions come in, a topic's block is looked up, whoever holds requests is woken when one is
lifted. The limits are those of the policies in force, the numbers those of the newest decision; so a quota
that is raised or removed lifts as soon as that is known. Nothing is decided here: without decisions nobody is
blocked.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from cachetools import LRUCache

from enforcer.core.law import Context, DecisionReader, EnforcerLaw
from enforcer.core.settings import BacklogStale
from enforcer.laws.backlog.block import Block, acts, block_of
from streaming.contract.backlog.actions import BEGUN, ENDED, BacklogAction
from streaming.contract.backlog.decisions import TTL_MS, BacklogDecision, backlog_decision
from streaming.contract.fields import Fields
from streaming.contract.names import namespace_of
from streaming.contract.printable import printable
from streaming.metrics import MetricTable, counter, gauge, histogram
from streaming.policy.topics import check_interval_s

BACKLOG_TOPICS_MAX: Final = 10_000
"""Topics beyond or near a quota that blocks producers, known at a time; further ones are not blocked."""
BACKLOG_STALE_CHECKS: Final = 3
"""A decision is too old after so many check intervals, at least 60 s: one may be lost, and one late."""

logger = logging.getLogger(__name__)

STALE_MIN_MS: Final = 60_000
"""No decision is too old before it: as long as one stands when nothing is heard."""
FORGET_MS: Final = 3_600_000
"""Of a topic that nothing was heard of for so long nothing is known; the job repeats no longer either."""
_LOG_AGAIN_MS: Final = 60_000
HELD_BUCKETS_S: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)

INSIDE, POLICY, STALE, OTHER, STOP = "inside", "policy", "stale", "other_quota", "stop"
"""Why a block ended: the backlog is inside; the policies say otherwise; the decision is too old; another
quota blocks the topic now; the enforcer stops."""

Wake = Callable[[], None]


class Statement(NamedTuple):
    """What the newest decision says of a topic.

    Attributes:
        id, ts: its own; when the backlog was so, ms since the epoch.
        size, age: bytes; seconds, -1: not known.
        until_ms: for how long it stands when nothing more is heard, on the steady clock.
    """

    id: str
    ts: int
    size: float
    age: int
    until_ms: float


def _decision_of(fields: Fields) -> BacklogDecision:
    decision = backlog_decision(fields)
    namespace_of(decision.topic)
    return decision


class BlockMetrics(MetricTable):
    """What an enforcer tells Prometheus of blocked producers: docs/metrics.md, "Blocked producers"."""

    prefix = "weir_producer_block_"

    blocks = gauge("Topics whose producers are blocked", "quota_type policy", "weir_producer_blocks")
    requests = counter("Requests to blocked topics, by what became of them", "quota_type policy outcome")
    held = gauge("Requests that are held now")
    held_seconds = histogram("How long a request was held", HELD_BUCKETS_S)
    stale = counter("Decisions that became too old", "outcome", "open keep")
    dropped = counter("Decisions beyond 10,000 topics")
    actions = counter("Steps of blocks logged", "step result", "begun ended", "written failed dropped")


class Blocks(EnforcerLaw):
    """The blocks of one enforcer, for one event loop.

    Attributes:
        active: some topic is blocked; while none is nothing else here need be asked.
        generation: goes up with each block that begins, ends or changes its policy.
        metrics: what is told of them; whoever blocks counts there too.
    """

    # The plan of one topic may name thousands of subscriptions, and no enforcer needs it.
    reads = DecisionReader(
        type="backlog", parse=_decision_of, standing=True, unread=frozenset({"evict"})
    )  # fmt: skip

    def __init__(self, context: Context, _accounts: object = None) -> None:
        self.active = False
        self.generation = 0
        self.metrics = BlockMetrics(context.metrics.registry)
        self._settings = context.settings
        self._clock = context.clock
        self._brokers_ms = context.brokers_ms
        self._policies = context.policies
        self._used = self._seen = context.policies.at(context.brokers_ms())
        self._send_action = context.send_action
        # A block of another process of the same name is another one.
        self._actor = f"{context.proxy_id}-{context.clock.wall_ms()}"
        # Topic -> its block that has met a request; no more than there are blocks.
        self._begun: dict[str, Block] = {}
        self._blocks: dict[str, Block] = {}
        # Beyond a quota and not; together they are bounded. The oldest stands first.
        self._beyond: dict[str, Statement] = {}
        self._near: dict[str, Statement] = {}
        # Time of the newest decision of topics in neither, so that an older one is passed over.
        self._inside: LRUCache[str, int] = LRUCache(BACKLOG_TOPICS_MAX)
        # Time of the decisions that were found too old, so that each is counted once.
        self._stale: dict[str, int] = {}
        self._told_ms = float("-inf")
        self._waiting: dict[Wake, None] = {}
        self._lifted = False

    def block(self, topic: str) -> Block | None:
        """What stands in the way of a topic's producers; None: nothing."""
        return self._blocks.get(topic)

    def began(self, block: Block) -> None:
        """A request was held or refused for a block; the first one is logged."""
        if block.topic not in self._begun:
            self._begun[block.topic] = block
            self._write(block, BEGUN, "")

    @property
    def standing_ms(self) -> int:
        """As long as a decision stands, where any policy in force may block producers."""
        return TTL_MS if acts(self._used) else 0

    def wait(self, wake: Wake) -> None:
        """Call this, once, when some block has ended or changed."""
        self._waiting[wake] = None

    def stop_waiting(self, wake: Wake) -> None:
        """Do not."""
        self._waiting.pop(wake, None)

    def take(self, decisions: Sequence[BacklogDecision]) -> None:
        """Decisions that were read, in order."""
        self._look_at_policies()
        now_ms = self._clock.steady_ms()
        for said in decisions:
            self._take(said, now_ms)
        self._settle()

    def look(self) -> None:
        """See which policies are in force, and what has become too old."""
        self._look_at_policies()
        self._look_at_age()
        self._settle()

    def stop(self) -> None:
        """Log that no block of ours stands any more."""
        for topic in list(self._blocks):
            self._set(topic, None, STOP)
        self._settle()

    def _look_at_policies(self) -> None:
        policies = self._policies.at(self._brokers_ms())
        if policies is not self._seen:
            self._used = policies
            for topic, statement in [*self._beyond.items(), *self._near.items()]:
                self._place(topic, statement, POLICY)
            # Not before: a mistake at one of them leaves the others to the next look.
            self._seen = policies

    def _take(self, said: BacklogDecision, now_ms: float) -> None:
        topic = said.topic
        known = self._beyond.get(topic) or self._near.get(topic)
        if said.ts < (self._inside.get(topic, -1) if known is None else known.ts):
            return
        statement = Statement(said.id, said.ts, said.size, said.age, now_ms + said.ttl_ms)
        self._place(topic, statement, INSIDE)

    def _place(self, topic: str, statement: Statement, why: str) -> None:
        """Keep what is to be kept of a topic, and block it or not; `why` not, if it is blocked now."""
        self._beyond.pop(topic, None)
        self._near.pop(topic, None)
        block, near = block_of(self._used, topic, statement.size, statement.age, statement.id)
        if block is None:
            self._stale.pop(topic, None)
        if (block is not None or near) and self._has_room(beyond=block is not None):
            (self._near if block is None else self._beyond)[topic] = statement
        else:
            block = None
            self._inside[topic] = statement.ts
        if block is not None and self._settings.backlog_stale is BacklogStale.OPEN:
            late = self._too_old({topic: statement})
            if late:
                self._count_stale(late)
                block, why = None, STALE
        self._set(topic, block, why)

    def _has_room(self, *, beyond: bool) -> bool:
        """Whether one more topic may be kept; for one beyond its quota another may have to go."""
        if len(self._beyond) + len(self._near) < BACKLOG_TOPICS_MAX:
            return True
        self.metrics.dropped.inc()
        if not beyond or not self._near:
            return False
        del self._near[next(iter(self._near))]
        return True

    def _set(self, topic: str, block: Block | None, why: str) -> None:
        before = self._blocks.get(topic)
        if before is not None and block is not None and before.kind == block.kind:
            # The same one, with newer numbers.
            self._blocks[topic] = replace(block, decision=before.decision)
            return
        if before is None and block is None:
            return
        self.generation += 1
        if before is not None:
            self._lifted = True
            self.metrics.blocks.labels(*before.kind).dec()
            del self._blocks[topic]
        if block is not None:
            self.metrics.blocks.labels(*block.kind).inc()
            self._blocks[topic] = block
        # One that met no request is not spoken of.
        if (begun := self._begun.pop(topic, None)) is not None:
            self._write(begun, ENDED, why if block is None else OTHER)

    def _write(self, block: Block, step: str, why: str) -> None:
        """Log a step of a block on `weir.decisions`; never waited for: what cannot be written is counted."""
        action = BacklogAction(
            id=f"{block.decision}/{block.quota_type}/{self._actor}",
            ts=self._brokers_ms(),
            topic=block.topic,
            quota_type=block.quota_type,
            policy=block.policy,
            limit=block.limit,
            actor=self._actor,
            step=step,
            how="hold" if block.holds else "refuse",
            reason=why,
        )
        if not self._send_action(action.fields(), block.topic, acked=partial(self._acked, step)):
            self.metrics.actions.labels(step, "dropped").inc()

    def _acked(self, step: str, record_ms: int | None) -> None:
        """In a thread."""
        self.metrics.actions.labels(step, "failed" if record_ms is None else "written").inc()

    def _settle(self) -> None:
        self.active = bool(self._blocks)
        if self._lifted:
            self._lifted = False
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()

    def _look_at_age(self) -> None:
        steady_ms, late = self._clock.steady_ms(), self._too_old(self._beyond)
        if late:
            self._count_stale(late)
        for topic, statement in late.items():
            gone = steady_ms - statement.until_ms > FORGET_MS
            if gone:
                del self._beyond[topic]
                self._stale.pop(topic, None)
            if gone or self._settings.backlog_stale is BacklogStale.OPEN:
                self._set(topic, None, STALE)
        while self._near and steady_ms - self._near[oldest := next(iter(self._near))].until_ms > FORGET_MS:
            del self._near[oldest]

    def _too_old(self, statements: dict[str, Statement]) -> dict[str, Statement]:
        """Those that are not to be acted on any more."""
        checks_ms = BACKLOG_STALE_CHECKS * check_interval_s(self._used) * 1000
        since_ts = self._brokers_ms() - max(STALE_MIN_MS, checks_ms)
        steady_ms = self._clock.steady_ms()
        return {
            topic: statement
            for topic, statement in statements.items()
            if statement.ts < since_ts or steady_ms > statement.until_ms
        }

    def _count_stale(self, late: dict[str, Statement]) -> None:
        """Count each once, and say so once a while."""
        new = [topic for topic, statement in late.items() if self._stale.get(topic) != statement.ts]
        if not new:
            return
        outcome = self._settings.backlog_stale
        self._stale.update((topic, late[topic].ts) for topic in new)
        self.metrics.stale.labels(outcome.value).inc(len(new))
        now_ms = self._clock.steady_ms()
        if now_ms - self._told_ms >= _LOG_AGAIN_MS:
            self._told_ms = now_ms
            logger.warning(
                "what is known of %d backlogs is too old, such as that of %s: is a collector of backlogs"
                " running, and the job? their producers %s (proxy.backlog_stale)",
                len(new),
                printable(new[0]),
                "go on" if outcome is BacklogStale.OPEN else "stay blocked",
            )
