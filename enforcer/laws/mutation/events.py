"""Events of requests for partition mutations: on their way to `weir.requests`, and read back from there
before a proxy lets clients in; and how many questions are open (docs/contract.md 3.1).

What is too large to be sent could not be charged. Names are what makes an event large, and nobody decides by
them, so they are cut where they must be; what was cut is put back when the decision comes. Counts are never
touched.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

import orjson

from enforcer.core.feeds.peers import Charge
from enforcer.core.law import Context, Sender
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import OnLate
from enforcer.laws.mutation.local_decisions import LocalDecisions
from enforcer.laws.mutation.request import (
    PROBE_API,
    Aliases,
    Answer,
    Decision,
    MutationQuota,
    Request,
)
from streaming.contract.decisions import LONGEST_THROTTLE_MS
from streaming.contract.errors import WeirError
from streaming.contract.names import PROBE_SUFFIX

EVENT_BYTES_MAX: Final = 900_000
"""Of a request event and its key. Kafka's default bound of a record is 1,048,588 bytes, and the decision,
which may repeat every name and the subject, has to fit one too."""
_KEPT: Final = (32, 0)
"""So many characters of a name are kept, before its number among the items; tried in this order."""
# A character is at most 6 bytes of JSON. User and client-id come twice, within the subject percent-encoded.
_CHAR_BYTES: Final = 6
_ITEM_BYTES: Final = 64
_FIELD_BYTES: Final = 1_024
INCLUDED_MAX: Final = 500_000
"""Ids of events that admissions hold; the oldest leave."""
Called = Callable[[], None]
_LINE: Final = "line "
_WOKEN_MAX: Final = 8
"""Called at a time: each may handle a request, and the loop has other things to do."""


class Uncharged(WeirError):
    """A request that no event can hold: nobody could decide it, and nobody would be charged for it."""


class RequestEvents:
    """Makes them, each with an id of its own."""

    def __init__(self, context: Context) -> None:
        self._proxy_id, self._metrics, self._clock = context.proxy_id, context.metrics, context.clock
        # If so, the job does not charge what it decides late.
        self._on_late_reject = context.settings.on_late_decision is OnLate.REJECT
        # The start time keeps the ids of a restarted proxy apart from those of the one before.
        self._id_head = f"{context.proxy_id}-{context.clock.wall_ms()}"
        self._count = 0

    def request(
        self, request: Request, quota: MutationQuota | None, *, together: bool = False, decided: bool = False
    ) -> dict[str, Any]:
        """The event of a request that is about to be sent, under the quota in force.

        Args:
            request: it; gets an id, its subject, and its items as they are sent.
            together: nothing is decided about each of its items.
            decided: what is decided about each of them is going to be in the event as well.

        Raises:
            Uncharged: it is too large.
        """
        # Not told by the client-id: anybody may call himself so.
        request.id = self.next_id() + (PROBE_SUFFIX if request.api == PROBE_API else "")
        request.subject = "" if quota is None else quota.subject
        request.shadow = quota is not None and quota.shadow
        request.on_late_reject = self._on_late_reject
        request.sent_ms = self._clock.steady_ms()
        return self._event(request, together=together, decided=decided)

    def decided(
        self, event: dict[str, Any], request: Request, answer: Answer, quota: MutationQuota
    ) -> None:
        """Put what was decided at once into a request's event, and note it as its decision."""
        event["ts"] = answer.ts
        event["decided"] = answer.decided()
        request.decision = Decision(
            id=request.id,
            ts=answer.ts,
            proxy=self._proxy_id,
            subject=request.subject,
            throttle_time_ms=min(answer.throttle_time_ms, LONGEST_THROTTLE_MS),
            rejected=in_own_names(request.aliases, frozenset(answer.rejected)),
            limit=quota.rate,
            tokens=answer.tokens,
        )

    def charge(self, request: Request, why: str, items: Mapping[str, int]) -> tuple[Request, dict[str, Any]]:
        """What charges mutations of a request that its own event did not, and the event of that."""
        charge = request.as_done(items)
        charge.api, charge.id, charge.subject = "", f"{request.id}-{why}", request.subject
        return charge, self._event(charge, together=True)

    def refund(self, refund_id: str, request: Request, items: Mapping[str, int]) -> dict[str, Any]:
        """The event that gives back what a decided request did not use."""
        assert request.decision is not None
        event: dict[str, Any] = {
            "type": "refund",
            "id": refund_id,
            "proxy": self._proxy_id,
            "of": request.id,
            "of_ts": request.decision.ts,
            "user": request.user,
            "client_id": request.client_id,
            "subject": request.subject,
        }
        put_items(event, request.home, items, may_sum=True)
        return event

    def next_id(self) -> str:
        """An id that no other event has."""
        self._count += 1
        return f"{self._id_head}-{self._count}"

    def _event(self, request: Request, *, together: bool = False, decided: bool = False) -> dict[str, Any]:
        strict, dry = request.strict, request.dry_run
        event: dict[str, Any] = {
            "type": "request",
            "id": request.id,
            "proxy": self._proxy_id,
            "user": request.user,
            "client_id": request.client_id,
        }
        if request.api:
            event |= {"api": request.api, "api_version": request.api_version}
        event |= {"strict": strict, "validate_only": dry, "subject": request.subject}
        may_sum = together or not strict or dry or not request.subject
        put = put_items(event, request.home, request.items, may_sum=may_sum, twice=decided and strict)
        if put is None:
            self._metrics.events.labels("too_large").inc()
            raise Uncharged(f"{len(request.items)} items are too many for one event")
        request.sent, request.aliases = put
        return event


def put_items(
    event: dict[str, Any], key: str, counts: Mapping[str, int], *, may_sum: bool, twice: bool = False
) -> tuple[Mapping[str, int], Aliases] | None:
    """Put a request's items into its event, so that it fits a record.

    Args:
        event: without its items, which are added.
        key: the record's.
        counts: name -> mutations, in order.
        may_sum: all items are admitted or rejected together, so one that holds their sum says the same.
        twice: leave room for all names once more, in the list of those that were rejected.

    Returns:
        The items as they are sent, and what was sent in place of which names; None if there is no way to send
        them: nothing was added.

    >>> event = {"type": "refund"}
    >>> put_items(event, "user=a", {"a": 1, "b": 2}, may_sum=True), event["items"]
    (({'a': 1, 'b': 2}, {}), [{'name': 'a', 'mutations': 1}, {'name': 'b', 'mutations': 2}])
    """
    for aliases in _ways(counts, may_sum):
        sent = counts
        if aliases:
            sent = {name: sum(counts[own] for own in names) for name, names in aliases.items()}
        event["items"] = [{"name": name, "mutations": count} for name, count in sent.items()]
        if _fits(event, key, [*sent, *sent] if twice else sent, list(sent) if twice else []):
            return sent, aliases
    event.pop("items")
    return None


def in_own_names(aliases: Aliases, sent: frozenset[str]) -> frozenset[str]:
    """The names that were meant by those that were sent."""
    return frozenset(own for name in sent for own in aliases.get(name, ())) if aliases else sent


def _ways(counts: Mapping[str, int], may_sum: bool) -> Iterator[Aliases]:
    yield {}
    for kept in _KEPT:
        yield {f"{name[:kept]}#{number}": (name,) for number, name in enumerate(counts)}
    if may_sum:
        yield {f"{len(counts)} items": tuple(counts)}


def _fits(event: Mapping[str, Any], key: str, names: Collection[str], again: list[str]) -> bool:
    # Nearly all are far below the bound, and writing JSON only to measure it costs more than this sum.
    chars = sum(map(len, names)) + len(event.get("user", "")) + len(event.get("client_id", ""))
    most = _FIELD_BYTES + _ITEM_BYTES * len(names) + _CHAR_BYTES * (chars + 2 * len(key))
    if most <= EVENT_BYTES_MAX:
        return True
    return len(orjson.dumps(event)) + len(orjson.dumps(again)) + len(key.encode()) <= EVENT_BYTES_MAX


class EventSender:
    """Hands events over, in the order in which they were given: by their times the job counts on that.

    The event of a request that was decided here goes beside the request (docs/contract.md 3.1). To write it
    takes longer than to decide, so it is put off for the moment that the loop needs to send the request on.

    Args:
        soon: calls a function once what was written to sockets has left.
    """

    def __init__(self, sender: Sender, soon: Callable[[Called], object]) -> None:
        self._sender = sender
        self._soon = soon
        self._waiting: deque[Called] = deque()

    def send(self, event: Mapping[str, Any], key: str, *, acked: Acknowledged | None = None) -> bool:
        """Hand an event over now, behind those that wait; False if it was dropped."""
        self.catch_up()
        return self._sender.send(event, key, acked=acked)

    def room(self) -> bool:
        """Whether there is room for one more, those that were put off aside: of these there are few."""
        return self._sender.room()

    def send_soon(self, event: Mapping[str, Any], key: str, acked: Acknowledged) -> None:
        """Hand an event over in a moment; `acked` is told None if it was dropped."""
        self.later(partial(self._send, event, key, acked))

    def later(self, function: Called) -> None:
        """Call a function in a moment, in its turn."""
        self._waiting.append(function)
        if len(self._waiting) == 1:
            self._soon(self.catch_up)

    def catch_up(self) -> None:
        """Do all that was put off."""
        while self._waiting:
            try:
                self._waiting.popleft()()
            except Exception as mistake:  # noqa: BLE001 — the loop gets it, not the client whose turn it is
                self._soon(partial(_raise, mistake))

    def _send(self, event: Mapping[str, Any], key: str, acked: Acknowledged) -> None:
        if not self._sender.send(event, key, acked=acked):
            acked(None)


def _raise(mistake: Exception) -> None:
    raise mistake


class ReadBack:
    """Fills local decisions with what stands on the topics, before a proxy lets clients in.

    1. R is `law.back_ms`. Read `weir.decisions` from R before its newest record on, each partition in
       order; give every admission to `ReadBack.admission`.
    2. Read `weir.requests` from R before the newest of these admissions on (none: before the newest record of
       `weir.decisions`; none: before now), each partition in order; give every event with `decided`, and
       every refund, to `ReadBack.event`, whoever sent it.
    3. Follow both topics' decisions from where 1. ended, by `LocalDecisions.stated`.

    Attributes:
        newest_ts: applied time of the newest admission, ms; None: there was none.

    Args:
        local_decisions: still empty.
    """

    def __init__(self, local_decisions: LocalDecisions) -> None:
        self.newest_ts: int | None = None
        self._local_decisions = local_decisions
        self._included: dict[str, int] = {}  # id -> applied time of the admission that holds it
        self._dropped_ts = -1

    def admission(self, statement: Decision) -> None:
        """Take an admission, in order."""
        self.newest_ts = max(self.newest_ts or 0, statement.at)
        for name in (statement.id, *statement.refunds):
            self._included[name] = statement.at
        if len(self._included) > INCLUDED_MAX:
            # Many at once: a dict steps over all that left before the first.
            for name in list(self._included)[: INCLUDED_MAX // 2]:
                self._dropped_ts = max(self._dropped_ts, self._included.pop(name))
        if statement.subject:
            self._local_decisions.stated(statement)

    def event(self, charge: Charge) -> None:
        """Take a decided request, or a refund, in order; one that an admission holds is passed over."""
        # Where ids had to be let go, what is as old as they are is held by one of them.
        if charge.id not in self._included and charge.ts > self._dropped_ts:
            self._local_decisions.read_back(charge)


class OpenQuestions:
    """Open questions by subject, and whom to call when somebody may go on.

    A question takes the job's time, and a subject that asks very many at once would make everybody else wait
    for theirs. So each has so many open at a time, and its next ones stand in line, first come, first served.

    Args:
        per_subject: questions that one subject may have open,
        in_all: and all of them together.
    """

    def __init__(self, per_subject: int, in_all: int) -> None:
        self._per_subject = per_subject
        self._in_all = in_all
        self._open: dict[str, int] = {}
        self._open_in_all = 0
        # In order of arrival; as many as there are connections, each is in one line at most.
        self._waiting: dict[str, dict[Called, None]] = {}

    def full(self, subject: str) -> bool:
        """Whether a further question of the subject has to wait."""
        return self._open_in_all >= self._in_all or self._open.get(subject, 0) >= self._per_subject

    def busy(self, subject: str) -> bool:
        """Whether any question of the subject is open."""
        return subject in self._open

    def begin(self, subject: str) -> None:
        """A question of the subject is open from now on."""
        self._open[subject] = self._open.get(subject, 0) + 1
        self._open_in_all += 1

    def end(self, subject: str) -> None:
        """One is not open any more: call those that stand in line for it."""
        left = self._open.pop(subject) - 1
        if left:
            self._open[subject] = left
        was_full = self._open_in_all >= self._in_all
        self._open_in_all -= 1
        own = line_of(subject)
        if was_full:
            # The place is everybody's: who has waited longest may be of a subject that has none open. One
            # that has all it may have would not take it, and those behind it would not hear of it.
            lines = (name for name in self._waiting if name.startswith(_LINE) and name != own)
            other = next((name for name in lines if not self.full(name.removeprefix(_LINE))), None)
            for wake in list(self._waiting.get(other or "", ()))[:1]:
                wake()
        for wake in list(self._waiting.get(own, ()))[:_WOKEN_MAX]:
            if self.full(subject):
                break
            wake()

    def wait_for(self, name: str, wake: Called) -> None:
        """Call `wake` when it is time; it stays until `stop_waiting`.

        Args:
            name: a subject whose not-before time is waited for, or the `line_of` one.
        """
        self._waiting.setdefault(name, {})[wake] = None

    def stop_waiting(self, name: str, wake: Called) -> None:
        """Undo `wait_for`."""
        waiting = self._waiting.get(name, {})
        waiting.pop(wake, None)
        if not waiting:
            self._waiting.pop(name, None)

    def wake(self, name: str) -> None:
        """Call all who wait for this."""
        for wake in list(self._waiting.get(name, ())):
            wake()

    def wake_all(self) -> None:
        """Call everybody."""
        for name in list(self._waiting):
            self.wake(name)


def line_of(subject: str) -> str:
    """The name under which one stands in line for a subject's open questions; no subject begins so."""
    return f"{_LINE}{subject}"
