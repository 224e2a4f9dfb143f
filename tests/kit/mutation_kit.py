"""Requests for partition mutations without sockets: the test sets the clock and plays Kafka and the job."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from clock_kit import SteadyClock
from law_kit import T0, Event
from law_kit import quota as quota_entry

from benchmarks.kit.lone_proxy import context, enforce
from enforcer.core.law import Clock
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.mutations import Answer, Mutations
from enforcer.laws.mutation.request import Answer as Decided
from enforcer.laws.mutation.request import Decision, Request
from streaming.policy.policy_set import MutationQuota
from streaming.policy.timeline import PolicyTimeline

EPOCH_MS = 1_795_166_668_375
SUBJECT = "user=alice"
INITIAL: dict[str, Any] = {"quotas[user=<default>]": quota_entry(2, 22)}


class Desk(SteadyClock):
    """A coordinator, its clocks, and the events it sent."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.full = False
        self.acknowledges = self.prompt = True
        self.unacknowledged: list[Acknowledged] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.settings = ProxySettings(**settings)
        self.metrics = Metrics(self.settings.metric_subjects)
        clock = Clock(steady_ms=lambda: self.now_ms, wall_ms=lambda: self.wall_ms)
        self.later: list[Callable[[], None]] = []
        self.context = context(
            clock, settings=self.settings, metrics=self.metrics, requests=self, send_action=self.send,
            soon=self.soon,
        )  # fmt: skip
        self.coordinator = QuotaCoordinator(self.context)
        self.decided: list[Decision | None] = []

    @property
    def wall_ms(self) -> int:
        """The brokers' time."""
        return EPOCH_MS + int(self.now_ms)

    def stand_alone(self, proxies: int = 1) -> None:
        """All is read back, and so many proxies are alive: what is decided here is, from now on."""
        self.coordinator.begin()
        self.coordinator.local_decisions.set_proxies(proxies)
        self.coordinator.local_decisions.blind = False

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Take an event (coordinator.Sender)."""
        if self.full:
            return False
        self.events.append((key, dict(event)))
        if acked is not None:
            self.unacknowledged.append(acked)
            if self.acknowledges:
                self.acknowledge()
        return True

    def room(self) -> bool:
        """Whether it would take one (coordinator.Sender)."""
        return not self.full

    def soon(self, function: Callable[[], None]) -> None:
        """Do what was put off at once, or let it be (`later`)."""
        if self.prompt:
            function()
        else:
            self.later.append(function)

    def acknowledge(self, *, stands: bool = True) -> None:
        """Kafka has all that was sent, or never will."""
        told, self.unacknowledged = self.unacknowledged, []
        for acked in told:
            acked(self.wall_ms if stands else None)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The events of one type, in order."""
        return [event for _, event in self.events if event["type"] == kind]

    def limit(self, path: str = "quotas[user=a]", **value: Any) -> None:
        """Put a quota in force now; without values it is removed."""
        enforce(self.coordinator.policies, self.wall_ms, {path: value or None})

    def ask(self, items: Mapping[str, int], *, strict: bool = True, dry: bool = False) -> Any:
        """Ask as user a; None: it could not be asked."""
        request = asked(items, strict=strict, dry=dry)
        return request if self.coordinator.ask(request, self.quota, self.decided.append) else None

    @property
    def quota(self) -> Any:
        """That of user a."""
        return self.coordinator.quota("a", "c")

    def decide(self, ask: Any, **fields: Any) -> Decision:
        """The job's decision for it arrives."""
        made = decision(**{"id": ask.id, "subject": ask.subject, "ts": self.wall_ms, **fields})
        self.coordinator.take([made])
        return made


def asked(items: Mapping[str, int], *, strict: bool = True, dry: bool = False) -> Request:
    """A request of user a with client-id c."""
    return Request(
        user="a", client_id="c", api="CreateTopics", api_version=7 if strict else 5,
        strict=strict, dry_run=dry, items=items,
    )  # fmt: skip


def decision(**fields: Any) -> Decision:
    """A decision that allows, unless said otherwise."""
    default: dict[str, Any] = {
        "id": "p1-1", "ts": EPOCH_MS, "proxy": "p1", "subject": "user=a", "throttle_time_ms": 0,
        "rejected": frozenset(), "limit": 1.0, "tokens": 1.0, "rate": None, "shadow": False, "late": False,
    }  # fmt: skip
    return Decision(**{**default, **fields})


class Bureau:
    """Decides requests of user a under a quota of rate 1 and burst 11.

    Args:
        local: decided here, by all that is known; else the job is asked.
        settings: of the proxy.
    """

    def __init__(self, *, local: bool = True, **settings: Any) -> None:
        self.desk = Desk(decide="local" if local else "strict", **settings)
        self.mutations = Mutations(self.desk.coordinator, self.desk.call_later)
        self.desk.limit(controller_mutation_rate=1)
        self.desk.stand_alone()

    async def pass_ms(self, count: float) -> None:
        """Let time pass, and whoever waited for it go on."""
        self.desk.run(count)
        await settle_down()

    async def begin(
        self, items: Mapping[str, int], wait_ms: float = 0, *, dry: bool = False
    ) -> "asyncio.Task[Answer]":
        """A request comes and goes as far as it can."""
        task = asyncio.create_task(self.mutations.decide(asked(items, dry=dry), wait_ms))
        await settle_down()
        return task

    async def answer(self, items: Mapping[str, int], wait_ms: float = 0, *, dry: bool = False) -> Answer:
        """The answer to a request that is answered at once."""
        task = await self.begin(items, wait_ms, dry=dry)
        assert task.done()
        return task.result()

    def outcomes(self) -> dict[str, float]:
        """Requests counted by outcome."""
        (family,) = self.desk.metrics.requests.collect()
        return {
            sample.labels["outcome"]: sample.value
            for sample in family.samples
            if sample.name.endswith("_total")
        }


async def settle_down() -> None:
    """All that can go on does."""
    for _ in range(10):
        await asyncio.sleep(0)


def quota(subject: str = "user=a", **fields: Any) -> MutationQuota:
    """User a's quota of one a second, with other fields."""
    default: dict[str, Any] = {"rate": 1.0, "burst": 11.0, "algorithm": "token_bucket", "shadow": False}
    return MutationQuota(subject=subject, path="quotas[user=a]", level=3, **{**default, **fields})


def quota_of(timeline: PolicyTimeline, ts: int, subject: str = SUBJECT) -> Any:
    """The quota in force."""
    return timeline.at(ts).mutation_quota_of_subject(subject)


def local_of(
    initial: Mapping[str, Any], subjects_max: int = 1_000, tail_max: int = 100_000
) -> LocalDecisions:
    """Local decisions over policies that stay as they are."""
    return LocalDecisions(PolicyTimeline(initial), subjects_max=subjects_max, tail_max=tail_max)


def statement(subject: str, event_id: str, at: int, tokens: float | None, refunds: Any = ()) -> Decision:
    """An admission, as far as local decisions are concerned."""
    return decision(id=event_id, subject=subject, ts=at, tokens=tokens, refunds=tuple(refunds))


def statement_of(admission: Mapping[str, Any]) -> Decision:
    """An admission as local decisions take it."""
    at = admission.get("applied_ts", admission["ts"])
    return statement(
        admission["subject"], admission["id"], at, admission.get("tokens"), admission.get("refunds", ())
    )


def own(
    name: str, ts: int, items: Mapping[str, int], *, strict: bool = True, dry: bool = False
) -> tuple[Request, int]:
    """A request of SUBJECT as local decisions take it, and its time."""
    request = asked(items, strict=strict, dry=dry)
    request.id, request.subject, request.sent = name, SUBJECT, items
    return request, ts


def own_of(event: Event) -> tuple[Request, int]:
    """A request event as local decisions take it."""
    items = {item["name"]: item["mutations"] for item in event["items"]}
    strict, dry = event.get("strict", True), event.get("validate_only", False)
    return own(event["id"], event["ts"], items, strict=strict, dry=dry)


def ask(
    local: LocalDecisions, name: str, at_ms: int, *counts: int, strict: bool = True, dry: bool = False,
    subject: str = SUBJECT,
) -> Decided | None:  # fmt: skip
    """Local decisions get a request `at_ms` after T0, one item a number of mutations."""
    items = {f"t{number}": count for number, count in enumerate(counts)}
    asked = own(name, T0 + at_ms, items, strict=strict, dry=dry)
    return local.decide(quota_of(PolicyTimeline(INITIAL), T0, subject), *asked)


def told(answer: Decided | None) -> tuple[Any, ...]:
    """What a client is told."""
    assert answer is not None
    return answer.outcome, answer.rejected, answer.throttle_time_ms, answer.tokens


def state(local: LocalDecisions, name: str, at_ms: int, tokens: float | None, *refunds: str) -> None:
    """Read an admission."""
    local.stated(statement(SUBJECT, name, T0 + at_ms, tokens, refunds))
