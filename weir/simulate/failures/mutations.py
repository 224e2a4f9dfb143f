"""Requests for partition mutations, through the proxies' own admissions (docs/contract.md 3.1)."""

from asyncio import TimerHandle
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final, cast

from enforcer.core.law import EnforcerLaw
from enforcer.laws.mutation.admission import Admission
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.mutation.request import Action, MutationQuota, Reply, Request
from streaming.contract.events import Request as Asked
from streaming.policy.policy_set import Algorithm, Decide
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.failures.excess import Found
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.scenario import Facts
from weir.simulate.failures.world import HISTORY_MS, Traffic

CLUSTER_MS: Final = 5
"""How long the cluster takes to carry a request out."""
_LINE_MS: Final = 100
_HOLD_MS: Final = 1_000
_VERSIONS: Final = {True: 7, False: 5}
"""Of CreateTopics: with error 89, and before it."""


class Mutations(Traffic):
    """What clients ask, each at its recorded time and of whichever proxy it comes to."""

    job = ("mutation",)

    def __init__(self, recorded: Sequence[Asked], found: Found, timeline: PolicyTimeline) -> None:
        super().__init__(recorded, found, timeline)
        self._coordinators: dict[str, QuotaCoordinator] = {}
        self._strict: set[str] = set()
        self._sampled: set[str] = set()
        self._forced: set[str] = set()
        self._timeout_s = 0.0

    def enforce(self, proxy: Proxy) -> list[EnforcerLaw]:
        """See world.Traffic."""
        law = MutationQuotas(proxy.context)
        self._timeout_s = proxy.context.settings.decision_timeout_ms / 1000
        self._coordinators[proxy.name] = law.coordinator
        return [law]

    def opened(self, proxy: Proxy) -> None:
        """See world.Traffic."""
        self._coordinators[proxy.name].begin()

    def bound(self, name: str, facts: Facts) -> float:
        """See world.Traffic: docs/laws.md, "Several proxies"."""
        found, proxies = self.found[name], facts.proxies
        most, burst, rate = found.largest, found.burst, found.limit
        late = rate * facts.blind_late_s
        if name in self._sampled:
            # The draft lets pass what no bucket does.
            return inf
        if name in self._strict:
            # The job is asked: what it answers is up to L old, and what it answers too late passes.
            open_s = max(facts.away_s, facts.cut_s, facts.late_s - self._timeout_s)
            return inf if open_s > 0 or name in self._forced else most + late
        # What cannot be refused passes whole at each proxy, before its subject must wait there.
        forced = proxies * most if name in self._forced else 0.0
        if proxies == 1:
            return most + forced
        # Who comes reads ten minutes back.
        unknown = burst if facts.joins and burst > rate * HISTORY_MS / 1000 else 0.0
        return (proxies + 1) * most + (proxies - 1) / proxies * (burst + late) + late + unknown + forced

    def _come(self, number: int, asked: Asked) -> None:
        proxy = self.world.home(number)
        if proxy is not None:
            Asking(self, proxy, self._coordinators[proxy.name], asked).go()

    def passed(self, now: int, quota: MutationQuota, mutations: int, *, strict: bool) -> None:
        """The cluster is asked for so many."""
        found = self.found.of(quota.subject)
        if not strict:
            self._forced.add(quota.subject)
        if quota.algorithm != Algorithm.TOKEN_BUCKET:
            self._sampled.add(quota.subject)
        elif quota.decide == Decide.STRICT:
            self._strict.add(quota.subject)
        found.even(now, mutations, quota.rate, quota.burst)


class Asking:
    """One request: the shell of its admission (enforcer/laws/mutation/admission.py).

    Attributes:
        proxy, coordinator: where it came.
        asked: what was recorded of it.
        items: name -> mutations.
        quota: in force for it when it had its turn.
        admission: None until then.
    """

    too_large = "{}"

    def __init__(self, traffic: Mutations, proxy: Proxy, coordinator: QuotaCoordinator, asked: Asked) -> None:
        self._traffic, self.proxy, self.coordinator, self.asked = traffic, proxy, coordinator, asked
        self._until: float | None = None
        self.quota: MutationQuota | None = None
        self.admission: Admission | None = None
        self.items = dict(zip(asked.names, map(int, asked.mutations), strict=True))

    def go(self) -> None:
        """Come to the proxy, or have its turn."""
        asked, coordinator, now = self.asked, self.coordinator, self.proxy.world.now
        if self._until is None:
            # It is read now; while its proxy stood still nobody counted.
            self._until = now + coordinator.settings.decision_timeout_ms
        self.quota = quota = coordinator.quota(asked.user, asked.client_id)
        verdict = coordinator.judge(quota, strict=asked.strict, dry_run=asked.validate_only)
        if verdict.action is Action.HOLD:
            # It may end sooner: by a refund, or another quota.
            self.proxy.after(min(verdict.wait_ms, _HOLD_MS), self.go)
            return
        lines_up = quota is not None and coordinator.must_line_up(quota, verdict, strict=asked.strict)
        if lines_up and (now < self._until or not asked.strict):
            self.proxy.after(_LINE_MS, self.go)
            return
        request = Request(
            user=asked.user, client_id=asked.client_id, api="CreateTopics",
            api_version=_VERSIONS[asked.strict], strict=asked.strict, dry_run=asked.validate_only,
            items=self.items,
        )  # fmt: skip
        self.admission = Admission(coordinator, self, request, quota, verdict)
        if lines_up:
            self.admission.late()
        else:
            self.admission.start()

    def look_up(self) -> None:
        """See admission.Shell: it is counted already."""
        assert self.admission is not None
        self.admission.counted(self.items)

    def stated(self) -> Mapping[str, int]:
        """See admission.Shell."""
        return self.items

    def leaves(self, rejected: Collection[str]) -> bool:
        """See admission.Shell."""
        return len(rejected) < len(self.items)

    def carry_out(self, rejected: Collection[str]) -> bool:
        """See admission.Shell."""
        done = self.made(rejected)
        if self.quota is not None and not self.quota.shadow:
            now, mutations = self.proxy.world.now, sum(done.values())
            self._traffic.passed(now, self.quota, mutations, strict=self.asked.strict)
        self.proxy.after(CLUSTER_MS, partial(self._done, done))
        return True

    def made(self, rejected: Collection[str]) -> Mapping[str, int]:
        """What the cluster does of it: all but these."""
        return {name: count for name, count in self.items.items() if name not in rejected}

    def _done(self, done: Mapping[str, int]) -> None:
        assert self.admission is not None
        self.admission.carried_out(done)
        self.admission.finish()

    def answer(self, told: Reply) -> Callable[[float], None]:
        """See admission.Shell: what was recorded comes when it came."""
        return lambda _mute_ms: None

    def note(self, outcome: str) -> None:
        """See admission.Shell."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> TimerHandle:
        """See admission.Shell, which does no more with it than cancel it."""
        return cast(TimerHandle, self.proxy.after(delay_ms, function))
