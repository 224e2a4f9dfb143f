"""What is counted while a run goes on, second by second."""

from dataclasses import dataclass, field

from weir.simulate.scenario import NS


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
