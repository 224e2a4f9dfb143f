"""What all connections of a Kafka proxy share."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.host.budget import Budget
from enforcer.host.doors.certificates import Visitor
from enforcer.host.moving import Mover
from enforcer.host.sockets import Address
from enforcer.host.turns import Turns
from enforcer.kafka.addresses.brokers import Repeats
from enforcer.kafka.guard.answers import AnswerFilter
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Concern
from enforcer.laws.mutation.coordinator import QuotaCoordinator


class Context(Protocol):
    """The proxy, as its connections see it.

    Attributes:
        settings: bounds and time limits.
        metrics: counts.
        coordinator: tells the time, and who may go on.
        concerns: make the parts of a connection, in the order in which they take its requests.
        protected: what a request that passes unread must not name.
        rewrite: makes a broker's answer one that clients may see.
        repeats: answers that were changed before.
        turns: shares the loop out.
        budget: of memory.
        mover: moves bytes between sockets.
    """

    settings: ProxySettings
    metrics: Metrics
    coordinator: QuotaCoordinator
    concerns: tuple[Concern, ...]
    protected: OwnTopics
    rewrite: AnswerFilter
    repeats: Repeats
    turns: Turns
    budget: Budget
    mover: Mover

    def now_ms(self) -> float:
        """The steady clock."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay."""

    def in_force(self) -> object:
        """The policies of now, by which requests are read while no law is active."""

    def visitor(self, connection: object, transport: asyncio.BaseTransport) -> Visitor:
        """What is known of a client that has come."""

    def named(self, name: str) -> Address | None:
        """The broker that a server's name (SNI) stands for; None: none, it is the bootstrap."""

    def admit(self, connection: Any) -> str:
        """Take a new client in; returns why not, if that cannot be."""

    def forget(self, connection: Any) -> None:
        """A client is gone."""
