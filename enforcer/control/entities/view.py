"""The one view over all laws: whose limit, how much of it is used, who waits or is refused, and since when.

It is fed with what is read of the decisions and of events, by the admin process as they come and by
`weir top` from the topics' recent past.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from cachetools import LRUCache

from enforcer.control.dispatch.table import DispatchDecision
from enforcer.control.entities.details import Asked as AskedAmounts
from enforcer.control.entities.details import Details
from enforcer.control.entities.feed import Asked, Flight, Sign
from enforcer.control.entities.laws import Entity, Law
from enforcer.control.entities.members import Members
from enforcer.control.entities.signs import Signs
from enforcer.control.entities.table import EntityTable, Nearest, Snapshot
from streaming.contract.backlog.decisions import BacklogDecision
from streaming.contract.decisions import CANDIDATE, Admission, LimitDecision, Share
from streaming.contract.fields import Fields
from streaming.contract.names import INFLIGHT_GROUP_PREFIX, is_probe
from streaming.contract.usage_events import GroupUsage
from streaming.kafka_io.newest import Newest
from streaming.laws.dispatch.law import DIMENSIONS, NONE
from streaming.policy.dispatch_limits import NOT_LIMITED, Limit, limit_of
from streaming.policy.groups import group_limits
from streaming.policy.policy_set import DEFAULT_BURST_SECONDS, PolicySet, candidates_of, mutation_quota_at

ROWS_MAX: Final = 100_000
"""Rows of each table, of entities, usage, deliveries and backlogs; those silent longest go first."""
_LIMITS_KEPT: Final = 10_000
_REQUESTS_KEPT: Final = 10_000
_KNOWN_MS: Final = 60_000
"""How long a measurement holds that is not repeated."""
_BACKLOG_KNOWN_MS: Final = 180_000
_SNAPSHOT_MS: Final = 500
"""A snapshot serves so long, however many ask."""
_HOLD: Final = "producer_request_hold"
_REFUSE: Final = "producer_exception"

Decided = Admission | Share | DispatchDecision | LimitDecision | BacklogDecision


class EntityView:
    """All entities of all laws, by the policies in force, which are none while they are not read."""

    def __init__(self, policies: Callable[[], PolicySet], rows_max: int = ROWS_MAX) -> None:
        self.table = EntityTable(rows_max)
        self.details = Details()
        self.members = Members(rows_max)
        self.signs = Signs()
        self._policies = policies
        self._limits: LRUCache[tuple[str, ...], Any] = LRUCache(_LIMITS_KEPT)
        self._limits_of: Mapping[str, Any] | None = None
        self._recent: Newest[tuple[str, str], tuple[int, int]] = Newest(_REQUESTS_KEPT, group=itemgetter(0))
        self._dirty: dict[str, int] = {}
        self._snapshot: Snapshot | None = None
        self.told: dict[Any, Any] = {}
        """What was made of this snapshot for everybody, so that many who look cost as much as one."""
        self.watch: dict[Callable[[Entity, Fields], None], None] = {}
        """Told of each new decision by the policies in force."""

    @property
    def policies(self) -> PolicySet:
        """Those in force."""
        return self._policies()

    def take_decisions(self, decisions: Sequence[tuple[Any, Fields, int]]) -> None:
        """Take decisions in: each as it was read, its JSON object, and when it was written (ms)."""
        for decision, fields, ts in decisions:
            taken = _DECISIONS.get(type(decision))
            if taken is None or is_probe(fields):
                continue
            entity = entity_of(decision)
            named, repeated = fields.get(CANDIDATE), fields.get("repeat") is True
            candidate = named if isinstance(named, str) else None  # policies that are tried
            asked = fields.get("applied_ts", fields.get("ts"))
            self.signs.decided(ts, entity, decision, asked if type(asked) is int and not repeated else None)
            if entity is None:
                continue
            if candidate is not None or not repeated:
                self.details.heard(entity).decided(fields, candidate)
            if candidate is None:
                taken(self, decision, entity, ts, fields.get("shadow") is True, repeated)
                for told in () if repeated else list(self.watch):
                    told(entity, fields)
        self._settle()

    def take_reports(self, reports: Sequence[tuple[Any, Fields, int]]) -> None:
        """Take events in, as `take_decisions` does decisions."""
        for report, _, ts in reports:
            if isinstance(report, GroupUsage):
                self.members.take_report(report, ts)
                self._dirty.update((group, ts) for group, _ in report.usage)
            elif isinstance(report, Flight):
                self._take_flight(report, ts)
            elif isinstance(report, Asked):
                self._take_asked(report, ts)
            elif isinstance(report, Sign):
                self.signs.take(report, ts)
        self._settle()

    def snapshot(self, now_ms: int) -> Snapshot:
        """All rows as they are now, or were half a second ago."""
        kept = self._snapshot
        if kept is None or not 0 <= now_ms - kept.now_ms < _SNAPSHOT_MS or len(kept.used) != len(self.table):
            kept = self._snapshot = self.table.snapshot(now_ms)
            self.told.clear()
        return kept

    def _take_admission(
        self, said: Admission, entity: Entity, ts: int, shadow: bool, repeated: bool
    ) -> None:
        if not said.limit:  # No law says 0, but somebody may.
            return
        table, row = self.table, self.table.heard(entity, ts, shadow)
        columns = table.columns
        columns["limit"][row] = said.limit
        own = self._cached(("burst", "", "", entity.name), partial(own_burst, subject=entity.name))
        burst = DEFAULT_BURST_SECONDS * said.limit if own is None else own
        columns["burst"][row] = burst
        columns["level_at"][row] = said.at
        level = said.tokens
        if level is None:
            # The mean over the windows of a full burst: what is left of it as a bucket has it.
            level = burst * (1 - (said.rate or 0.0) / said.limit)
        columns["level"][row] = level
        if not repeated:
            table.count(row, ts, said.mutations)
            self.details.used(entity, said.proxy, ts, said.mutations)
            if said.rejected:
                table.refused(row, ts, 1)
        wait_ms = said.throttle_time_ms
        if wait_ms or not repeated:
            table.waits(row, said.at, said.at + wait_ms if wait_ms else 0)
        if wait_ms:
            self._note_wait(entity, ts)

    def _take_share(self, said: Share, _entity: Entity, ts: int, _shadow: bool, _repeated: bool) -> None:
        self.members.take_share(said, ts)
        self._dirty[said.group] = ts

    def _take_dispatch(
        self, said: DispatchDecision, entity: Entity, ts: int, shadow: bool, _repeated: bool
    ) -> None:
        found = self._nearest_counter(said)
        if found is None:
            return
        row = self.table.heard(entity, ts, shadow)
        self.table.measured(row, ts, found, ts + _KNOWN_MS)
        # Of several brokers one may go on while others wait: each wait ends by itself.
        until = said.at + said.throttle_ms
        if said.throttle_ms and until > self.table.columns["until"][row]:
            self.table.waits(row, said.at, until)
            self._note_wait(entity, ts).most(ts, found[1])

    def _take_slots(
        self, said: LimitDecision, entity: Entity, ts: int, shadow: bool, _repeated: bool
    ) -> None:
        row = self.table.heard(entity, ts, shadow)
        used, until = (self.table.columns[name][row] for name in ("used", "used_until"))
        self.table.measured(row, ts, (0, used, said.limit), until)

    def _take_backlog(
        self, said: BacklogDecision, entity: Entity, ts: int, shadow: bool, repeated: bool
    ) -> None:
        sizes = [(0, said.size, said.limit_size), (1, float(max(0, said.age)), said.limit_time)]
        limited = [(used / limit if limit else used, measure, used, limit)
                   for measure, used, limit in sizes if limit > 0 or (limit == 0 and measure == 0)]
        if not limited:
            return
        _, measure, used, limit = max(limited)
        row = self.table.heard(entity, ts, shadow)
        self.table.measured(row, ts, (measure, used, limit), ts + _BACKLOG_KNOWN_MS)
        policies = {policy for _, policy in said.exceeded}
        self.table.waits(row, said.ts, ts + said.ttl_ms if _HOLD in policies else 0)
        if _REFUSE in policies:
            self.table.refused(row, ts, int(not repeated))
        if said.exceeded:
            self._note_wait(entity, ts)
        known = self.details.get(entity)
        if known is not None and known.asked is not None:
            known.asked.most(ts, used)

    def _take_flight(self, said: Flight, ts: int) -> None:
        entity = Entity(Law.CONCURRENCY, said.partition)
        row = self.table.heard(entity, ts, False)
        limit = float(self.table.columns["limit"][row])
        self.table.measured(row, ts, (0, said.inflight, limit), ts + _KNOWN_MS)
        full = 0 < limit <= said.inflight
        # A slot is free when an answer comes.
        self.table.waits(row, ts, ts + max(said.rtt_ms, _SNAPSHOT_MS) if full else 0, said.rtt_ms)
        if said.dropped:
            self.table.refused(row, ts, said.dropped)
        if full or said.dropped:
            self._note_wait(entity, ts)

    def _take_asked(self, said: Asked, ts: int) -> None:
        if not said.subject or not said.mutations:
            return
        detail = self.details.get(Entity(Law.MUTATION, said.subject))
        if detail is not None and detail.asked is not None:
            detail.asked.add(ts, said.mutations)
        else:
            self._recent.put((said.subject, said.id), (said.mutations, ts))

    def _settle(self) -> None:
        """Sum up the groups of which something was heard."""
        dirty, self._dirty = self._dirty, {}
        for group, ts in dirty.items():
            limits = self._cached(("group", "", "", group), partial(group_limits, group=group))
            if limits is None or group.startswith(INFLIGHT_GROUP_PREFIX):
                continue
            use = self.members.use(group, ts)
            rates = [(used / limit, place, used, limit)
                     for place, (used, limit) in enumerate(zip(use.rates, limits.rates, strict=True))
                     if limit is not None]
            if not rates:
                continue
            _, measure, used, limit = max(rates)
            entity = Entity(Law.SHARES, group)
            row = self.table.heard(entity, ts, limits.shadow)
            self.table.measured(row, ts, (measure, used, limit), use.until)
            held = use.throttled_ms > 0
            self.table.waits(row, ts, use.until if held else 0, use.throttled_ms)
            if held:
                # What was held back for a part of a time was wanted in the whole of it.
                free = max(0.1, 1 - use.throttled_ms / max(1.0, use.throttled_ms, (use.until - ts) / 2))
                self._note_wait(entity, ts).most(ts, used / free)

    def _note_wait(self, entity: Entity, ts: int) -> AskedAmounts:
        """What an entity asked for, which waits; what it asked for just before is counted in."""
        known = self.details.get(entity)
        new = known is None or known.asked is None
        detail = self.details.waits(entity, ts)
        assert detail.asked is not None
        if new and entity.law is Law.MUTATION:
            for key, (mutations, at) in self._recent.of_group(entity.name):
                detail.asked.add(at, mutations)
                self._recent.remove(key)
        return detail.asked

    def _nearest_counter(self, said: DispatchDecision) -> Nearest | None:
        """The counter nearest to its limit, both a second."""
        names = (said.broker, said.topic, said.subscription)
        found: list[tuple[float, int, float, float]] = []
        for depth in range(1, len(names) + 1):
            limit: Limit = self._cached(names[:depth], partial(limit_of, names=names[:depth]))
            counts = (NONE, NONE) if said.acquired is None else said.acquired[depth - 1]
            period_s = limit.period_ms / 1000
            for place, rate in enumerate(limit.rate):
                if rate == NOT_LIMITED:
                    continue
                left, count = said.available[place], counts[place]
                if count == NONE:
                    count = 0 if left == NONE else max(0, rate - left)
                measure = (depth - 1) * len(DIMENSIONS) + place
                found.append((count / rate, measure, count / period_s, rate / period_s))
        return max(found)[1:] if found else None

    def _cached(self, key: tuple[str, ...], find: Callable[[PolicySet], Any]) -> Any:
        """What is found in the policies in force, looked for once."""
        policies = self._policies()
        if self._limits_of is not policies.entries:
            self._limits_of = policies.entries
            self._limits.clear()
        if key not in self._limits:
            self._limits[key] = find(policies)
        return self._limits[key]


def own_burst(policies: PolicySet, subject: str) -> float | None:
    """The burst that a subject's quota sets; None: none, so it goes by the rate.

    Not by the set's own look-up, which remembers all that were asked about.
    """
    for place in candidates_of(subject):
        value = policies.entries.get(place.path, {})
        if mutation_quota_at(place, value) is not None:
            burst: float | None = value.get("controller_mutation_burst")
            return burst
    return None


def entity_of(decision: Decided) -> Entity | None:
    """Whom a decision is about; None: nobody whom anything limits."""
    if isinstance(decision, Admission):
        return Entity(Law.MUTATION, decision.subject) if decision.subject else None
    if isinstance(decision, Share):
        if decision.group.startswith(INFLIGHT_GROUP_PREFIX):
            return Entity(Law.CONCURRENCY, decision.group.removeprefix(INFLIGHT_GROUP_PREFIX))
        return Entity(Law.SHARES, decision.group)
    if isinstance(decision, DispatchDecision):
        return Entity(Law.DISPATCH, f"{decision.topic}/{decision.subscription}")
    if isinstance(decision, LimitDecision):
        return Entity(Law.CONCURRENCY, decision.partition)
    return Entity(Law.BACKLOG, decision.topic)


_DECISIONS: Final[Mapping[type, Callable[..., None]]] = {
    Admission: EntityView._take_admission,
    Share: EntityView._take_share,
    DispatchDecision: EntityView._take_dispatch,
    LimitDecision: EntityView._take_slots,
    BacklogDecision: EntityView._take_backlog,
}
