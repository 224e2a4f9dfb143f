"""A cluster under test: its names, its quotas, its events."""

import itertools
from dataclasses import dataclass
from typing import Any

from proxy_kit import Decider, PolicyWriter, ProxyThread, until

from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from streaming.contract.topics import Topics
from weir.stack.kafka import LocalKafka, Sasl

LOOPBACK = "127.0.0.1"
DEFAULT_PARTITIONS = 3
USERS = Sasl(plain={"alice": "alice-secret", "bob": "bob-secret"}, scram={"carol": "carol-secret"})

_names = itertools.count()


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` as a pair."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def fresh(stem: str) -> str:
    """A name that no other test uses."""
    return f"{stem}-{next(_names)}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The broker, the thread that decides, and a writer of policies."""

    kafka: LocalKafka
    topics: Topics
    decider: Decider
    policies: PolicyWriter

    def config(
        self, *, sasl: bool = False, kafka: str = "", topics: Topics | None = None, **settings: Any
    ) -> ProxyConfig:
        """A proxy's configuration, in another installation if that is named; settings are ProxySettings'."""
        upstream = kafka or (self.kafka.sasl_bootstrap if sasl else self.kafka.bootstrap)
        own = {} if upstream == self.kafka.bootstrap else {"bootstrap.servers": self.kafka.bootstrap}
        return ProxyConfig(
            kafka=(address(upstream),),
            listen=(LOOPBACK, 0),
            topics=topics or self.topics,
            connection=own,
            # Passwords of tests may be read by anybody.
            settings=ProxySettings(**{"sasl_plain_without_tls": sasl, **settings}),
        )

    def limit(self, proxy: ProxyThread, client_id: str, **quota: Any) -> str:
        """Give ANONYMOUS with this client-id a quota of its own; returns its subject."""
        path = f"quotas[user=ANONYMOUS,client-id={client_id}]"
        self.policies.put(path, quota)
        self.await_quota(proxy, "ANONYMOUS", client_id, quota.get("controller_mutation_rate"))
        return path.removeprefix("quotas[").removesuffix("]")

    def await_quota(self, proxy: ProxyThread, user: str, client_id: str, rate: float | None) -> None:
        """Wait until a proxy knows a quota."""

        def known() -> bool:
            quota = proxy.proxy.coordinator.quota(user, client_id)
            return (None if quota is None else quota.rate) == rate

        until(known, what=f"quota of {user}/{client_id} is {rate}")

    def event_of(self, client_id: str, **fields: Any) -> dict[str, Any]:
        """The newest event of a client that has these fields, once it is there."""

        def found() -> dict[str, Any] | None:
            wanted = {"client_id": client_id, **fields}
            events = [event for event in self.decider.events if wanted.items() <= event.items()]
            return events[-1] if events else None

        return until(found, what=f"event of {client_id} with {fields}")  # type: ignore[no-any-return]
