"""One simulated history: its proxies, their clients, and what befalls them."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import orjson
from law_kit import T0
from simulated_case import LAST_MS, Case, Fault, Wish, shown
from simulated_job import Job, policy_event
from simulated_life import METRICS, Life, Place

from enforcer.core.feeds.decisions import Read
from enforcer.core.settings import OnLate, ProxySettings
from enforcer.laws.mutation.request import Reply
from streaming.contract.events import parse
from streaming.laws.mutation.rates import FULL
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.agenda import Timer
from weir.simulate.failures.excess import Found
from weir.simulate.failures.mutations import Asking, Mutations
from weir.simulate.failures.proxy import Proxy
from weir.simulate.failures.world import TOPICS, Setting

AGAIN_MS = 500
"""A client that finds no proxy tries again."""


class Client(Asking):
    """One request, and what its client is told."""

    def __init__(self, town: "Town", life: Life, number: int, wish: Wish) -> None:
        super().__init__(town.traffic, life, life.law.coordinator, wish)
        self.town, self.number = town, number
        self.outcome, self.over = "", False

    def go(self) -> None:
        """See Asking; in the end it waits no longer for its quota."""
        if not self.over and self.town.now > T0 + LAST_MS and self.waits:
            self.over = True
            self.town.note("waits", n=self.number)
        if not self.over:
            super().go()

    @property
    def waits(self) -> bool:
        """Whether its subject must wait, by what was decided."""
        proxy, waits = self.proxy, self.coordinator.not_before
        if self.admission is not None or self.quota is None or not proxy.on:
            return False
        return waits.until_ms(self.quota.subject, self.quota, proxy.context.clock.steady_ms()) is not None

    def leave(self) -> None:
        """Its client waits no longer."""
        if self.over:
            return
        if self.admission is None or not self.admission.admitted:
            self.over = True
            self.town.note("left", n=self.number)
            if self.admission is not None:
                self.admission.gone()

    def made(self, rejected: Collection[str]) -> Mapping[str, int]:
        """See Asking: what the cluster does of it, whatever becomes of its proxy."""
        wish, quota = self.asked, self.quota
        done = {name: n for name, n in super().made(rejected).items() if name not in wish.fails}
        if wish.validate_only:
            done = {}
        terms = None
        if quota is not None:
            terms = [quota.rate, quota.burst, quota.decide, quota.algorithm, quota.shadow]
        self.town.note("done", n=self.number, items=done, quota=terms)
        return done

    def note(self, outcome: str) -> None:
        """See admission.Shell."""
        self.outcome = outcome

    def answer(self, told: Reply) -> Callable[[float], None]:
        """See admission.Shell."""
        return lambda _mute_ms: self._tell(told)

    def _tell(self, told: Reply) -> None:
        self.over = True
        doubts, self.town.job.doubts = self.town.job.doubts, METRICS.unacknowledged._value.get()
        self.town.note(
            "told", n=self.number, outcome=self.outcome, rejected=sorted(told.rejected),
            wait_ms=told.left_ms, doubt=self.town.job.doubts > doubts,
        )  # fmt: skip


class Town:
    """All of one history; what stands for `weir.simulate.failures.world.World` to its proxies.

    Attributes:
        case: what it is of.
        entries: the history: what happened, in order, as JSON has it.
        lives: of its proxies, all that ever were.
        asked: what stands on `weir.requests` of it: time and bytes.
        said: what was decided, batch by batch.
        signs: signs of life, and who tells them.
        setting: what a proxy that starts now stands in.
    """

    def __init__(self, case: Case, job: Job) -> None:
        self.case, self.job = case, job
        self.entries: list[dict[str, Any]] = []
        self.settings = ProxySettings(on_late_decision=OnLate(case.on_late))
        self.traffic = Mutations([], Found(0), PolicyTimeline())
        self.lives: list[Life] = []
        self.clients: dict[int, Client] = {}
        self.asked: list[tuple[int, bytes]] = []
        self.said: list[list[Read]] = []
        self.signs: list[tuple[int, Callable[[Proxy], None]]] = []
        initial = {case.path: case.quota}
        self.setting = Setting(initial=initial, changes=[], places=(), begin=T0, end=0)
        self._places = [Place(*link) for link in case.links]
        self._running: list[Life | None] = []
        job.readers[case.user] = self
        for number in range(len(self._places)):
            self._running.append(None)
            self.at(T0, partial(self._start, number))
        for fault in case.faults:
            self.at(T0 + fault.at, partial(self._befall, fault))
        for number, wish in enumerate(case.wishes):
            self.at(T0 + wish.at, partial(self._come, number, wish))
        self.at(T0 + LAST_MS, self._ask_last)

    @property
    def now(self) -> int:
        """Simulated time."""
        return self.job.agenda.now

    def at(self, time_ms: int, function: Callable[[], None]) -> Timer:
        """Call something at a time."""
        return self.job.agenda.at(time_ms, function)

    def after(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call something later."""
        return self.job.agenda.after(delay_ms, function)

    def note(self, what: str, **fields: Any) -> None:
        """Put something into the history."""
        self.entries.append({"at": self.now - T0, "what": what, **fields})

    def stand(self, topic: str, _law: str, value: bytes) -> None:
        """An event stands on a topic now."""
        self.job.stand(topic, value)
        self.asked.append((self.now, value))
        self.note("event", value=value.decode())

    def tell_alive(self, tell: Callable[[Proxy], None]) -> None:
        """All that run read what stands on `weir.usage` now."""
        self.signs.append((self.now, tell))
        self._reach(lambda life: partial(tell, life))

    def decided(self, said: list[tuple[bytes, Read]]) -> None:
        """See simulated_job.Reader."""
        for value, _ in said:
            self.note("decision", value=value.decode())
        own = [read for _, read in said]
        self.said.append(own)
        self._reach(lambda life: partial(life.read, own))

    def _reach(self, told: Callable[[Life], Callable[[], None]]) -> None:
        """All that run are told something, each when it has come down its link."""
        for life in self.lives:
            if life.on:
                self.at(life.through(self.now) + life.place.down_ms, told(life))

    def opened(self, life: Life) -> None:
        """Clients are let in."""
        life.law.coordinator.begin()
        self.note("open", proxy=life.name)

    def _start(self, number: int) -> None:
        if self._running[number] is None:
            name = f"{self.case.user}.p{number}"
            life = self._running[number] = Life(self, name, self._places[number])
            self.lives.append(life)
            self.note("start", proxy=name)
            life.start()

    def _befall(self, fault: Fault) -> None:
        self.note("fault", **shown(fault))
        begin, end = self.now, self.now + fault.for_ms
        chosen = [self._places[fault.target]] if fault.target >= 0 else self._places
        match fault.what:
            case "cut":
                for place in chosen:
                    place.holds.append((begin, end))
            case "slow":
                for place in chosen:
                    place.slow.append((begin, end, fault.how))
            case "stop":
                chosen[0].still.append((begin, end))
            case "clock":
                chosen[0].skew_ms += fault.how
            case "kill":
                self._kill(fault)
            case "join":
                self._places.append(Place(50, 50, 0))
                self._running.append(None)
                self._start(len(self._places) - 1)
            case "policy":
                self._change(fault.how)

    def _kill(self, fault: Fault) -> None:
        life = self._running[fault.target]
        if life is None:
            return
        life.die()
        self.note("killed", proxy=life.name)
        self._running[fault.target] = None
        for client in self.clients.values():
            if client.proxy is life and not client.over:
                client.over = True
                self.note("reset", n=client.number)
        if fault.for_ms:
            self.after(fault.for_ms, partial(self._start, fault.target))

    def _change(self, quota: dict[str, Any] | None) -> None:
        value = policy_event(f"{self.case.user}-{self.now}", self.now, self.case.path, quota)
        self.job.stand(TOPICS.policies, value)
        change = parse(value, default_id="", default_ts=self.now)
        self.setting.changes.append(change)
        self._reach(lambda life: life._while_on(partial(life.context.policies.apply, [change])))

    def _come(self, number: int, wish: Wish) -> None:
        """A client comes to one of the proxies that are open, or tries again."""
        there = [life for life in self.lives if life.open]
        if not there:
            self.after(AGAIN_MS, partial(self._come, number, wish))
            return
        life = there[int(wish.place * len(there))]
        client = self._ask(number, life, wish)
        if wish.leaves_ms is not None:
            self.after(wish.leaves_ms, life._while_on(client.leave))

    def _ask(self, number: int, life: Life, wish: Wish, **more: Any) -> Client:
        client = self.clients[number] = Client(self, life, number, wish)
        items = dict(zip(wish.names, wish.mutations, strict=True))
        self.note(
            "asked", n=number, proxy=life.name, items=items, strict=wish.strict, dry=wish.validate_only,
            fails=sorted(wish.fails), **more,
        )  # fmt: skip
        life._while_on(client.go)()
        return client

    def _ask_last(self) -> None:
        """When all is over each proxy that runs is asked for a little."""
        for place, life in enumerate([life for life in self.lives if life.open]):
            number = len(self.case.wishes) + place
            wish = Wish(self.now, 0.0, self.case.user, True, False, (f"l{place}",), (1,), frozenset(), None)
            self._ask(number, life, wish, last=True)

    def end(self) -> list[dict[str, Any]]:
        """What is left in the end; the whole history."""
        for number, client in sorted(self.clients.items()):
            if client.admission is not None:
                request = client.admission.request
                self.note("request", n=number, id=request.id, subject=request.subject, shadow=request.shadow)
        for life in self.lives:
            if life.on:
                left = _left(life, f"user={self.case.user}")
                self.note("left_over", proxy=life.name, open=life.open, **left)
        return self.entries

    def to_bytes(self) -> bytes:
        """The history as it is compared."""
        return b"\n".join(map(orjson.dumps, self.entries))


def _left(life: Life, subject: str) -> dict[str, Any]:
    """What a proxy waits for in the end, and what it knows of a subject."""
    coordinator = life.law.coordinator
    known = coordinator.local_decisions._subjects.get(subject)
    return {
        "pending": [request.id for request in coordinator.undecided.pending],
        "late": list(coordinator.undecided._late),
        "unacknowledged": list(coordinator._unacknowledged),
        "questions": dict(coordinator.questions._open),
        "tail": [] if known is None else list(known.tail),
        "tokens": None if known is None or known.base.tokens == FULL else known.base.tokens,
        "stated_at": None if known is None else known.base.at - T0,
    }
