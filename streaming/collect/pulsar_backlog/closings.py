"""When a topic's ledgers were closed, which Pulsar keeps and tells nobody.

It tells when the open ledger was created, which is when the one before was closed; of others it is known
that they were closed earlier. So a ledger is noted with the earliest time by which it was closed for sure:
ages by it are too small rather than too great. Of those that were there before the collector was, that may be
by much; then the publish time of the message behind the ledger tells more (`refine`).
"""

from streaming.collect.pulsar_backlog.readings import TopicLog


class Closings:
    """The close times of one topic's ledgers, look by look."""

    __slots__ = ("_loose", "_open", "_times")

    def __init__(self) -> None:
        self._times: dict[int, int] | None = None
        self._loose: set[int] = set()
        self._open: tuple[int, int] | None = None

    def take(self, log: TopicLog, at_ms: int) -> None:
        """A look at `at_ms`, by our clock."""
        created = self._created(log)
        # A broker's clock before ours must not close ledgers in the future.
        known_by = at_ms if created is None else min(at_ms, created)
        before, first = self._times or {}, self._times is None
        closed = [one.id for one in log.ledgers[: log.closed]]
        self._times = {ledger: before.get(ledger, known_by) for ledger in closed}
        if first:
            exact = closed[-1:] if created is not None else []
            self._loose.update(closed)
            self._loose.difference_update(exact)
        self._loose.intersection_update(closed)

    def time(self, ledger: int) -> int | None:
        """By when it was closed, ms since the epoch; None: it is open."""
        return None if self._times is None else self._times.get(ledger)

    def loose(self, ledger: int) -> bool:
        """Whether it may have been closed long before that."""
        return ledger in self._loose

    def refine(self, ledger: int, published: int) -> None:
        """The first message behind it was published at `published`."""
        if self._times is not None and ledger in self._times:
            self._times[ledger] = min(self._times[ledger], published)
            self._loose.discard(ledger)

    def _created(self, log: TopicLog) -> int | None:
        """When the open ledger was created; None also while Pulsar still tells when the one before was."""
        if log.created is None:
            return None
        now = log.ledgers[-1].id, log.created
        if self._open is not None and self._open[1] == now[1] and self._open[0] != now[0]:
            return None
        self._open = now
        return log.created
