"""One algorithm in one scenario: the events in the order of their times."""

from dataclasses import dataclass
from functools import partial

from streaming.laws.concurrency.settings import LimitSettings
from weir.simulate.agenda import Agenda
from weir.simulate.broker import Broker
from weir.simulate.draws import ARRIVALS, PLACES, STARTS, Draws
from weir.simulate.limiter import Limiter
from weir.simulate.proxies import Request, divide, equal_parts
from weir.simulate.scenario import NS, Scenario
from weir.simulate.tally import Second, Tally

_MS = 10**6
NOBODY = -1
"""Who asks again when a request of an open system is answered."""


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
