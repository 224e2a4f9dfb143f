"""What enforcers and the admin API keep of a month: no more after four weeks than after two.

Their tables are small here, so that all are full after a few days; all else has to go by itself.
"""

import gc
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest
from context_kit import READERS
from entity_kit import admission, backlog, decided, dispatch, latency, reported, request, share, slots, usage
from entity_kit import view as view_of
from group_finder_kit import Scene
from law_kit import T0
from message_kit import Record
from month_kit import DAY_MS, DAYS, POLICIES, WEEK, Readings, policies_of
from mutation_kit import own

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.control.entities import details, view
from enforcer.core import bounds
from enforcer.core.account import PUBLISH
from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.law import Clock, EnforcerLaw
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.kafka.groups import group_finder, trails
from enforcer.kafka.groups.readers import Client, Readers
from enforcer.laws.backlog import blocks
from enforcer.laws.concurrency.limits import ConcurrencyLimits
from enforcer.laws.concurrency.partitions import Partitions
from enforcer.laws.dispatch import counter_table
from enforcer.laws.dispatch.dispatch import Dispatch
from enforcer.laws.enforcement import LAWS
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.shares.groups import Groups
from enforcer.laws.shares.meter import Meter
from streaming.kafka_io.newest import Newest
from streaming.policy.timeline import PolicyTimeline

BOUNDS: list[tuple[ModuleType, str]] = [
    (details, "ENTITIES_MAX"), (details, "_PROXIES_MAX"), (view, "_LIMITS_KEPT"), (view, "_REQUESTS_KEPT"),
    (bounds, "BROKERS_MAX"), (blocks, "BACKLOG_TOPICS_MAX"), (counter_table, "BROKERS_MAX"),
    (trails, "GROUPS_MAX"), (group_finder, "TOPICS_MAX"),
]  # fmt: skip
"""Of tables that let go only when they are full."""
COMERS = 6
_APART = (type, ModuleType, FunctionType, BuiltinFunctionType)


def held(*parts: object) -> int:
    """How many objects are reached from these."""
    seen: dict[int, object] = {}
    left = list(parts)
    while left:
        new = {id(one): one for one in left}
        new = {key: new[key] for key in new.keys() - seen.keys() if not isinstance(new[key], _APART)}
        seen |= new
        left = gc.get_referents(*new.values())
    return len(seen)


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, 10)
    monkeypatch.setattr(ProxySettings, "dispatch_rows", 30)
    # Metrics of all that is there.
    monkeypatch.setattr(ProxySettings, "metric_subjects", 1_000)


class Proxy:
    """All laws of a proxy, what its clients do, and what it is told."""

    def __init__(self) -> None:
        self.now_ms = 0
        clock = Clock(steady_ms=lambda: float(self.now_ms), wall_ms=self.wall_ms)
        settings = ProxySettings(subjects_max=20)
        self.context = context(clock, settings=settings, metrics=Metrics(10))
        self.meter = Meter(settings, clock)
        self._laws: dict[type[EnforcerLaw], Any] = {law: law(self.context, self.meter) for law in LAWS}
        enforce(self.context.policies, 0, POLICIES)
        self._laws[MutationQuotas].coordinator.begin()

    def wall_ms(self) -> int:
        """Now, ms since the epoch."""
        return T0 + self.now_ms

    def hour(self, day: int, hour: int) -> None:
        """What a day's comers do in some minutes of an hour."""
        if not hour:
            enforce(self.context.policies, self.wall_ms(), policies_of(day, COMERS))
            self._look(day)
        for comer in range(COMERS):
            self.now_ms += 1_000
            self._comes(day, f"{day}-{comer}")
        for _ in range(3):
            self.now_ms += 60_000
            self._look(day)
            self._laws[Groups].end_round()

    def _look(self, day: int) -> None:
        self.context.membership.alive.heard(f"p{day}", self.wall_ms())
        self.context.membership.look()
        for law in self._laws.values():
            law.look()

    def _comes(self, day: int, name: str) -> None:
        policies, now, topic = self.context.policies, self.wall_ms(), f"persistent://d{day}/n0/t{name}"
        quota = policies.at(now).mutation_quota_of_subject(f"user={name}")
        asked, at = own(f"r{name}-{now}", now, {"t": 40})
        self._laws[MutationQuotas].coordinator.local_decisions.decide(quota, asked, at)
        for account in (self.meter.of_user(name, "c", PUBLISH), self.meter.of_group(name)):
            assert account is not None
            account.charge(PUBLISH, 90, 9_000, self.now_ms)
        deliveries = self._laws[Dispatch]
        moment = deliveries.moment(f"broker-{day}")
        deliveries.deliver_at(moment, topic, name, msgs=90, size=900, entries=90, backlog=True)
        self._laws[ConcurrencyLimits].partitions.find(f"broker-{day}")
        subject, own_share = f"user={name}", {"group": name, "limits": {"publishRateInMsgs": 5.0}}
        place = {"broker": f"broker-{day}", "topic": topic, "subscription": name}
        for said in (
            admission(now, subject=subject, tokens=-9.0, throttle_time_ms=900),
            *(share(now, broker, 5) | own_share for broker in ("p1", f"p{day}")),
            dispatch(now, 90, 900, **place),
            slots(now, 7) | {"partition": f"broker-{day}"},
            backlog(now, 9_000, topic=topic),
        ):
            for kind, read in decisions_in(Record(said, ts=now), READERS):  # type: ignore[arg-type]
                next(law for law in self._laws.values() if law.reads.type == kind).take([read])

    def figures(self) -> dict[str, float]:
        """Objects, and series of metrics."""
        series = sum(len(metric.samples) for metric in self.context.metrics.registry.collect())
        return {"objects": held(*self._laws.values()), "series": series}


class Consumers:
    """What a proxy knows of consumers' groups: members that come, read and end without a word."""

    def __init__(self) -> None:
        self._scene = Scene()

    def hour(self, day: int, hour: int) -> None:
        """Some groups, one of them limited."""
        scene = self._scene
        scene.now_ms = day * DAY_MS + hour * 3_600_000.0
        for comer in range(COMERS):
            client, group = Client(f"u{day}", f"10.0.{day}.{comer}", "c"), f"slow-{day}-{comer}"
            trail = scene.connection()
            scene.joins(group, client)
            scene.fetches(trail, 0, client)
            scene.gets(trail, 9)
            scene.moved(client.user, group, "persistent://public/default/t", 0, 9)
            scene.trails.leave(trail)
        scene.settles()
        scene.forgets()
        # As another proxy is told.
        scene.readers.news()
        scene.stands.news()
        scene.trails.gone.clear()

    def figures(self) -> dict[str, float]:
        """Objects."""
        return {"objects": held(vars(self._scene))}


class Console:
    """Whoever waits, as the admin API knows it."""

    def __init__(self) -> None:
        self._view = view_of(rows_max=30)

    def hour(self, day: int, hour: int) -> None:
        """Decisions on a day's comers, and what proxies report of them."""
        now = T0 + day * DAY_MS + hour * 3_600_000
        for comer in range(COMERS):
            name, at = f"{day}-{comer}", now + comer
            subject, partition = f"user={name}", f"broker-{day}"
            place = {"topic": f"persistent://acme/orders/t{name}"}
            of_day = {"proxy": f"p{day}"}
            reported(
                self._view, request(at, 9, subject=subject, **of_day) | {"id": f"r{at}"},
                usage(at, f"p{day}", 90, 900, usage={name: {"publishedMsg": 9}}),
                latency(at, 9) | {"partition": partition},
            )  # fmt: skip
            decided(
                self._view, admission(at, subject=subject, throttle_time_ms=900, **of_day),
                share(at, f"p{day}", 5) | {"group": name}, dispatch(at, 90, 900, **place, **of_day),
                slots(at, 7) | {"partition": partition}, backlog(at, 9_000, **place),
            )  # fmt: skip
        self._view.snapshot(now + 60_000)

    def figures(self) -> dict[str, float]:
        """Objects."""
        return {"objects": held(vars(self._view))}


def kept_of_a_month(part: Any) -> Readings:
    """What stays of it at the end of each day."""
    readings = Readings()
    for day in range(DAYS):
        for hour in (0, 9, 10, 21):
            if isinstance(part, Proxy):
                part.now_ms = day * DAY_MS + hour * 3_600_000
            part.hour(day, hour)
        if day >= WEEK:  # the days before are not looked at
            readings.note(day, part.figures())
    return readings


@pytest.mark.parametrize("part", [Proxy, Consumers, Console])
def test_a_month_leaves_no_more_than_a_fortnight(part: Callable[[], Any]) -> None:
    """Objects that are reached, and series."""
    assert kept_of_a_month(part()).grown() == {}


LEAKS: list[tuple[Callable[[], Any], type, str, str]] = [
    (Proxy, PolicyTimeline, "forget_before", "objects"), (Proxy, Partitions, "forget_idle", "series"),
    (Consumers, Readers, "_forget_idle", "objects"), (Console, Newest, "resize", "objects"),
]


@pytest.mark.parametrize(("part", "where", "name", "found"), LEAKS)
def test_a_leak_is_found(
    part: Callable[[], Any], where: type, name: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one of those parts does nothing any more that let go."""
    monkeypatch.setattr(where, name, lambda *_: None)
    assert found in kept_of_a_month(part()).grown()
