"""What all connections of a Kafka proxy share."""

from typing import Protocol

from enforcer.host.budget import Budget
from enforcer.host.moving import Mover
from enforcer.host.server import Hosting
from enforcer.host.sockets import Address
from enforcer.kafka.addresses.brokers import Repeats
from enforcer.kafka.guard.answers import AnswerFilter
from enforcer.kafka.guard.protected import OwnTopics
from enforcer.kafka.part import Concern
from enforcer.laws.mutation.coordinator import QuotaCoordinator


class Context(Hosting, Protocol):
    """The proxy, as its connections see it.

    Attributes:
        coordinator: tells the time, and who may go on.
        concerns: make the parts of a connection, in the order in which they take its requests.
        protected: what a request that passes unread must not name.
        rewrite: makes a broker's answer one that clients may see.
        repeats: answers that were changed before.
        budget: of memory.
        mover: moves bytes between sockets.
    """

    coordinator: QuotaCoordinator
    concerns: tuple[Concern, ...]
    protected: OwnTopics
    rewrite: AnswerFilter
    repeats: Repeats
    budget: Budget
    mover: Mover

    def in_force(self) -> object:
        """The policies of now, by which requests are read while no law is active."""

    def named(self, name: str) -> Address | None:
        """The broker that a server's name (SNI) stands for; None: none, it is the bootstrap."""
