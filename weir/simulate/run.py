"""One algorithm in one scenario: the events in the order of their times."""

from dataclasses import dataclass, field
from functools import partial
from heapq import heapreplace
from typing import Any, Final

from streaming.laws.concurrency.algorithms import STATE
from streaming.laws.concurrency.law import start, take
from streaming.laws.concurrency.settings import LimitSettings
from weir.simulate.agenda import Agenda
from weir.simulate.draws import ARRIVALS, PLACES, STARTS, WORK, Draws
from weir.simulate.proxies import Request, divide, equal_parts
from weir.simulate.scenario import NS, Scenario

_MS = 10**6
NOBODY = -1
"""Who asks again when a request of an open system is answered."""
CONSTANT_PART: Final = 0.5
"""Of the work of a request; the rest is exponential, so its deviation is half its mean."""


class Broker:
    """A pool of servers with one queue (M/G/k), first come, first served.

    Says of each request when it will be answered; nothing but its work and those before it decide that.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._mean_ns = scenario.servers / scenario.service_rate * NS
        self._work = Draws(scenario.seed, WORK)
        self._free_at = [0] * scenario.servers

    def send(self, now_ns: int, number: int) -> int:
        """Take in the n-th request; returns when it is answered, at least 1 ns from now."""
        factor = CONSTANT_PART + (1 - CONSTANT_PART) * self._work.exponential(number)
        work_ns = max(1, round(self._mean_ns * factor))
        done_ns = self._scenario.done_at(max(now_ns, self._free_at[0]), work_ns)
        heapreplace(self._free_at, done_ns)
        return done_ns


class Limiter:
    """One partition's limit, by the law of concurrency as a proxy runs it.

    The law reads its settings and state by name, so records and mappings are the same to it; these are
    mappings of Python's numbers, seven times as fast one sample at a time.
    """

    def __init__(self, settings: LimitSettings) -> None:
        row = settings.row[0]
        self._settings: dict[str, Any] = {name: row[name].item() for name in settings.row.dtype.names or ()}
        self._state: dict[str, Any] = dict.fromkeys(STATE.names or (), 0)
        start(self._state, self._settings)
        self.limit = int(self._state["estimate"])

    def take(self, start_ns: int, rtt_ns: int, inflight: int) -> bool:
        """Take a sample that was not dropped; returns whether `limit` is another now."""
        take(self._state, self._settings, start_ns, rtt_ns, inflight, False)
        before, self.limit = self.limit, int(self._state["estimate"])
        return self.limit != before


@dataclass(slots=True)
class Second:
    """What happened within one second.

    Attributes:
        arrived, completed, rejected: requests.
        inflight_ns: the sum over the requests of their time at the broker in this second.
        limit: at its end.
        rtts_ns, latencies_ns: of those completed in it: at the broker, and with the time in the proxy.
    """

    arrived: int = 0
    completed: int = 0
    rejected: int = 0
    inflight_ns: int = 0
    limit: int = 0
    rtts_ns: list[int] = field(default_factory=list)
    latencies_ns: list[int] = field(default_factory=list)


class Tally:
    """Counts by second; times must not go back."""

    def __init__(self, seconds: int, limit: int) -> None:
        self.seconds = [Second() for _ in range(seconds)]
        self.inflight = 0
        self.limit = limit
        self._at_ns = 0

    def advance(self, now_ns: int) -> Second:
        """Bring what was in flight up to a time; returns its second."""
        while self._at_ns // NS < now_ns // NS:
            second = self.seconds[self._at_ns // NS]
            end_ns = (self._at_ns // NS + 1) * NS
            second.inflight_ns += self.inflight * (end_ns - self._at_ns)
            second.limit = self.limit
            self._at_ns = end_ns
            if end_ns == len(self.seconds) * NS:
                return second
        second = self.seconds[now_ns // NS]
        second.inflight_ns += self.inflight * (now_ns - self._at_ns)
        self._at_ns = now_ns
        return second


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to.

    Attributes:
        seconds: of the scenario.
        inflight, waiting: requests at the broker and in the proxies at the end.
        most_above: the most by which all proxies together, when one of them sent a request on, had more in
            flight than the limit that it knew.
    """

    seconds: list[Second]
    inflight: int
    waiting: int
    most_above: int


def simulate(scenario: Scenario, settings: LimitSettings) -> Outcome:
    """Run a scenario under the settings of a partition; the same for the same arguments."""
    return _Run(scenario, settings).outcome()


class _Run(Agenda):
    """Times are ns."""

    def __init__(self, scenario: Scenario, settings: LimitSettings) -> None:
        super().__init__(0)
        self._scenario = scenario
        self._broker = Broker(scenario)
        self._limiter = Limiter(settings)
        self._known = self._limiter.limit
        self._proxies = equal_parts(scenario)
        self._tally = Tally(scenario.seconds, self._limiter.limit)
        self._gaps = Draws(scenario.seed, ARRIVALS)
        self._places = Draws(scenario.seed, PLACES)
        self._arrived = 0
        self._most_above = 0

    def outcome(self) -> Outcome:
        """Let the events happen until the time is up."""
        self._begin()
        end_ns = self._scenario.seconds * NS
        self.run(end_ns - 1)
        self._tally.advance(end_ns)
        waiting = sum(proxy.waits for proxy in self._proxies)
        return Outcome(self._tally.seconds, self._tally.inflight, waiting, self._most_above)

    def _begin(self) -> None:
        scenario = self._scenario
        if scenario.clients is None:
            self.at(self._gap(), partial(self._next_arrival, NOBODY))
        else:
            # Spread over a second: clients that begin as one would also go on as one.
            starts = Draws(scenario.seed, STARTS)
            for client in range(scenario.clients):
                self.at(round(starts.uniform(client) * NS), partial(self._arrive, client))
        if scenario.proxies > 1:
            self.at(scenario.round_s * NS, self._round)

    def _gap(self) -> int:
        return max(1, round(self._gaps.exponential(self._arrived) / self._scenario.arrival_rate * NS))

    def _next_arrival(self, client: int) -> None:
        self._arrive(client)
        self.at(self.now + self._gap(), partial(self._next_arrival, client))

    def _arrive(self, client: int) -> None:
        request = Request(self._arrived, self._place(client), self.now, client)
        self._arrived += 1
        self._tally.advance(self.now).arrived += 1
        proxy = self._proxies[request.proxy]
        if not proxy.waits and proxy.inflight < proxy.room(self._known):
            self._send(request)
        elif proxy.waits < self._scenario.waiting:
            request.waiting = True
            proxy.waits += 1
            proxy.queue.append(request)
            self.at(self.now + self._scenario.wait_ms * _MS, partial(self._give_up, request))
        else:
            self._reject(request)

    def _place(self, client: int) -> int:
        """The proxy that a request reaches; a client stays at its own."""
        proxies, first = self._scenario.proxies, self._scenario.first_part
        if proxies == 1:
            return 0
        drawn = self._places.uniform(self._arrived if client == NOBODY else client)
        if first is None:
            return int(drawn * proxies)
        if drawn < first:
            return 0
        # A quotient that is rounded up to 1 would be a proxy too many.
        return min(proxies - 1, 1 + int((drawn - first) / (1 - first) * (proxies - 1)))

    def _send(self, request: Request) -> None:
        self._tally.advance(self.now)
        self._tally.inflight += 1
        self._most_above = max(self._most_above, self._tally.inflight - self._known)
        proxy = self._proxies[request.proxy]
        proxy.inflight += 1
        proxy.note(self.now, self._known)
        request.sent_ns = self.now
        request.inflight = proxy.sample_inflight()
        self.at(self._broker.send(self.now, request.number), partial(self._complete, request))

    def _complete(self, request: Request) -> None:
        second = self._tally.advance(self.now)
        self._tally.inflight -= 1
        rtt_ns = self.now - request.sent_ns
        second.completed += 1
        second.rtts_ns.append(rtt_ns)
        second.latencies_ns.append(self.now - request.asked_ns)
        proxy = self._proxies[request.proxy]
        proxy.inflight -= 1
        proxy.note(self.now, self._known)
        if self._limiter.take(request.sent_ns, rtt_ns, request.inflight):
            self._tally.limit = self._limiter.limit
            if self._scenario.decision_ms:
                heard_ns = self.now + self._scenario.decision_ms * _MS
                self.at(heard_ns, partial(self._hear, self._limiter.limit))
            else:
                self._hear(self._limiter.limit)
        self._let_in(request.proxy)
        if request.client != NOBODY:
            self.at(self.now, partial(self._arrive, request.client))

    def _hear(self, limit: int) -> None:
        rose = limit > self._known
        self._known = limit
        self._room_changed(let_in=rose)

    def _room_changed(self, *, let_in: bool) -> None:
        for place, proxy in enumerate(self._proxies):
            proxy.note(self.now, self._known)
            if let_in:
                self._let_in(place)

    def _let_in(self, place: int) -> None:
        proxy = self._proxies[place]
        while proxy.waits and proxy.inflight < proxy.room(self._known):
            request = proxy.queue.popleft()
            if request.waiting:
                request.waiting = False
                proxy.waits -= 1
                self._send(request)

    def _give_up(self, request: Request) -> None:
        if request.waiting:
            request.waiting = False
            self._proxies[request.proxy].waits -= 1
            self._reject(request)

    def _reject(self, request: Request) -> None:
        self._tally.advance(self.now).rejected += 1
        if request.client != NOBODY:
            self.at(self.now + self._scenario.retry_ms * _MS, partial(self._arrive, request.client))

    def _round(self) -> None:
        self._room_changed(let_in=False)
        divide(self._scenario, self._known, self._proxies)
        self._room_changed(let_in=True)
        self.at(self.now + self._scenario.round_s * NS, self._round)
