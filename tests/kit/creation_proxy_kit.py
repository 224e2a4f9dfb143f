"""A Pulsar proxy in a thread that decides on partition mutations by itself: Kafka is away, it is alone."""

from contextlib import AbstractContextManager
from typing import Any

import pulsar
from pulsar_kit import client, fresh
from pulsar_proxy_kit import PulsarThread

from benchmarks.kit.lone_proxy import enforce
from enforcer.laws.mutation.law import MutationQuotas
from enforcer.laws.mutation.request import Request


class Limited:
    """A proxy and the quota of one user.

    The broker asks nobody for a login, so each test may have a user of its own.

    Args:
        thread: the proxy.
    """

    def __init__(self, thread: PulsarThread) -> None:
        self.thread = thread
        self.service = thread.bootstrap
        self.enforcement = thread.proxy.enforcement
        self.coordinator = self.enforcement.of(MutationQuotas).coordinator
        self.user = fresh("user")

        def begin() -> None:
            coordinator = self.coordinator
            coordinator.begin()
            coordinator.local_decisions.set_proxies(1)
            coordinator.local_decisions.blind = False

        self.thread.do(begin)

    def limit(self, **value: Any) -> None:
        """Put a quota in force now; without values it is removed."""

        def apply() -> None:
            now = self.enforcement.context.clock.wall_ms()
            enforce(self.coordinator.policies, now, {f"quotas[user={self.user}]": value or None})

        self.thread.do(apply)

    def client(self, **options: Any) -> AbstractContextManager[pulsar.Client]:
        """A client of that user."""
        login = pulsar.AuthenticationBasic(self.user, "any")
        return client(self.service, authentication=login, **options)

    def requests(self, api: str, outcome: str) -> float:
        """Requests counted."""
        return self.thread.metric("requests_total", api=api, outcome=outcome)

    def balance(self) -> float:
        """What the quota has left now; negative: it owes."""
        return self._charge(0)

    def owe(self, mutations: int) -> None:
        """Bring the balance so far below 0."""
        self._charge(mutations + round(self._charge(0)))

    def _charge(self, mutations: int) -> float:
        """Charge some, whatever the balance is; returns it."""
        balances: list[float | None] = []

        def charge() -> None:
            coordinator = self.coordinator
            request = Request(
                user=self.user, client_id="", api="Test", api_version=0, strict=False,
                items={"test": mutations},
            )  # fmt: skip
            quota = coordinator.quota(request.user, "")
            assert quota is not None
            coordinator.decide(request, quota, lambda _decision: None, lambda _acked: None)
            assert request.decision is not None
            balances.append(request.decision.tokens)

        self.thread.do(charge)
        (balance,) = balances
        assert balance is not None
        return balance

    def count(self, name: str, **labels: str) -> float:
        """A metric `weir_creation_...`."""
        return self.thread.sample(f"weir_creation_{name}", **labels)
