"""Events of requests for partition mutations, as they go to `weir.requests` (docs/contract.md 3.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enforcer.core.clock import Clock
from enforcer.core.metrics import Metrics
from enforcer.laws.mutation.gate import MutationQuota
from enforcer.laws.mutation.ledger import Ask
from enforcer.laws.mutation.sizes import put_items
from streaming.contract.events import ANONYMOUS
from streaming.contract.names import PROBE_SUFFIX, encode_name

PROBE_CLIENT_ID: Final = "weir-probe"
_PROBE_API: Final = "Probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request event says about its request.

    Attributes:
        user: principal.
        client_id: what the client calls itself.
        api: name of the API.
        api_version: its version.
        strict: can be rejected.
        validate_only: a dry run.
        items: name -> mutations, in the request's order.
    """

    user: str
    client_id: str
    api: str
    api_version: int
    strict: bool
    validate_only: bool
    items: Mapping[str, int]


class RequestEvents:
    """Makes them, each with an id of its own.

    Args:
        proxy_id: name of this proxy.
        metrics: counts those that are too large.
        clock: tells the time.
        on_late_reject: the job does not charge what it decides late.
    """

    def __init__(self, proxy_id: str, metrics: Metrics, clock: Clock, *, on_late_reject: bool) -> None:
        self._proxy_id = proxy_id
        self._metrics = metrics
        self._clock = clock
        self._on_late_reject = on_late_reject
        # The start time keeps the ids of a restarted proxy apart from those of the one before.
        self._id_head = f"{proxy_id}-{clock.wall_ms()}"
        self._count = 0

    def next_id(self) -> str:
        """An id that no other event has."""
        self._count += 1
        return f"{self._id_head}-{self._count}"

    def new_ask(self, asked: Asked, quota: MutationQuota | None) -> Ask:
        """A request that is about to be asked about, under the quota in force."""
        return Ask(
            # Not told by the client-id: anybody may call himself so.
            id=self.next_id() + (PROBE_SUFFIX if asked.api == _PROBE_API else ""),
            subject="" if quota is None else quota.subject,
            user=asked.user,
            client_id=asked.client_id,
            strict=asked.strict,
            dry_run=asked.validate_only,
            shadow=quota is not None and quota.shadow,
            on_late_reject=self._on_late_reject,
            items=asked.items,
            sent_ms=self._clock.steady_ms(),
        )

    def event(self, ask: Ask, asked: Asked | None) -> dict[str, Any]:
        """The event of a request, or of a charge after the fact, without its items."""
        event: dict[str, Any] = {
            "type": "request",
            "id": ask.id,
            "proxy": self._proxy_id,
            "user": ask.user,
            "client_id": ask.client_id,
        }
        if asked is not None:
            event |= {"api": asked.api, "api_version": asked.api_version}
        return event | {"strict": ask.strict, "validate_only": ask.dry_run, "subject": ask.subject}

    def refund(self, ask: Ask, refund: Mapping[str, int]) -> dict[str, Any]:
        """The event that gives back what a decided request did not use."""
        assert ask.decision is not None
        event: dict[str, Any] = {
            "type": "refund",
            "id": self.next_id(),
            "proxy": self._proxy_id,
            "of": ask.id,
            "of_ts": ask.decision.ts,
            "user": ask.user,
            "client_id": ask.client_id,
            "subject": ask.subject,
        }
        self.put_items(event, ask, refund, together=True)
        return event

    def put_items(
        self,
        event: dict[str, Any],
        ask: Ask,
        counts: Mapping[str, int],
        *,
        together: bool = False,
        decided: bool = False,
    ) -> bool:
        """Put items into an event of a request; False if none can hold them.

        Args:
            event: without items.
            ask: the request.
            counts: name -> mutations.
            together: nothing is decided about each of them.
            decided: what is decided about each of them is going to be in the event as well.
        """
        may_sum = together or not ask.strict or ask.dry_run or not ask.subject
        aliases = put_items(event, home_of(ask), counts, may_sum=may_sum, twice=decided and ask.strict)
        if aliases is None:
            self._metrics.events.labels("too_large").inc()
            return False
        if counts is ask.items:
            ask.aliases = aliases
        return True


def home_of(ask: Ask) -> str:
    """The routing key of a request's events."""
    return ask.subject or f"user={encode_name(ask.user)}"


def probe() -> Asked:
    """A request that costs nothing: its decision shows that events and decisions flow."""
    return Asked(
        user=ANONYMOUS,
        client_id=PROBE_CLIENT_ID,
        api=_PROBE_API,
        api_version=0,
        strict=True,
        validate_only=True,
        items={PROBE_CLIENT_ID: 0},
    )
