"""A coordinator with a clock that a test sets, and everything it sent."""

from collections.abc import Mapping
from typing import Any

from enforcer.core.clock import Clock
from enforcer.core.feeds.decisions import Decision
from enforcer.core.metrics import Metrics
from enforcer.core.reports import Acknowledged
from enforcer.core.settings import ProxySettings
from enforcer.laws.mutation.coordinator import QuotaCoordinator
from enforcer.laws.mutation.request_events import Asked
from streaming.contract.events import PolicyChange

EPOCH_MS = 1_795_166_668_375


class Desk:
    """A coordinator, its clocks, and the events it sent."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0.0
        self.wall_ms = EPOCH_MS
        self.full = False
        self.acknowledges = True
        self.unacknowledged: list[Acknowledged] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.settings = ProxySettings(**settings)
        self.metrics = Metrics(self.settings.metric_subjects_max)
        clock = Clock(steady_ms=lambda: self.now_ms, wall_ms=lambda: self.wall_ms)
        self.coordinator = QuotaCoordinator("p1", self.settings, self.metrics, self, clock)
        self.coordinator.call_at = lambda _ts, function: function()
        self.decided: list[Decision] = []

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

    def acknowledge(self, *, stands: bool = True) -> None:
        """Kafka has all that was sent, or never will."""
        told, self.unacknowledged = self.unacknowledged, []
        for acked in told:
            acked(self.wall_ms if stands else None)

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """The events of one type, in order."""
        return [event for _, event in self.events if event["type"] == kind]

    def pass_ms(self, count: float) -> None:
        """Both clocks go on."""
        self.now_ms += count
        self.wall_ms += int(count)

    def limit(self, path: str = "quotas[user=a]", version: int | None = None, **value: Any) -> None:
        """Put a quota in force now; without values it is removed."""
        change = PolicyChange(id="x", ts=self.wall_ms, path=path, value=value or None, version=version)
        self.coordinator.policies.apply([change])

    def ask(self, items: Mapping[str, int], *, strict: bool = True, dry: bool = False) -> Any:
        """Ask as user a."""
        return self.coordinator.ask(
            asked(items, strict=strict, dry=dry), self.coordinator.quota("a", "c"), self.decided.append
        )

    def decide(self, ask: Any, **fields: Any) -> Decision:
        """The job's decision for it arrives."""
        made = decision(**{"id": ask.id, "subject": ask.subject, "ts": self.wall_ms, **fields})
        self.coordinator.take([made])
        return made


def asked(items: Mapping[str, int], *, strict: bool = True, dry: bool = False) -> Asked:
    """A request of user a with client-id c."""
    return Asked(
        user="a", client_id="c", api="CreateTopics", api_version=7 if strict else 5,
        strict=strict, validate_only=dry, items=items,
    )  # fmt: skip


def decision(**fields: Any) -> Decision:
    """A decision that allows, unless said otherwise."""
    default: dict[str, Any] = {
        "id": "p1-1", "ts": EPOCH_MS, "proxy": "p1", "subject": "user=a", "throttle_time_ms": 0,
        "rejected": frozenset(), "limit": 1.0, "tokens": 1.0, "rate": None, "shadow": False, "late": False,
    }  # fmt: skip
    return Decision(**{**default, **fields})
