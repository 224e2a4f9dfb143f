"""What the collector of a Pulsar cluster follows on Weir's topics: policies, and the shares of everybody."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import Message

from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.feeds.policies import Policies, policies_tail
from enforcer.core.feeds.rows import packed
from enforcer.core.feeds.shares import Share
from enforcer.core.feeds.tail import Tail
from enforcer.core.feeds.unusable import Complaints
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.policy.groups import LIFE_ROUNDS, round_rules
from streaming.policy.policy_set import PolicySet

START_S = 30.0
STOP_S = 2.0
_SHARE = b'{"type":"share"'


@dataclass(frozen=True, slots=True)
class Standing:
    """A share, and what is left of its life, ms."""

    share: Share
    left_ms: int


class Feeds:
    """Both topics, followed from `start` to `stop`.

    Args:
        cluster: that holds them.
        take: gets every share, in the loop.
        unusable: counts a record that cannot be used.
    """

    def __init__(
        self,
        cluster: Cluster,
        take: Callable[[str, str, Mapping[str, float] | None, int], None],
        unusable: Callable[[], None],
    ) -> None:
        self._properties = {**cluster.client, "bootstrap.servers": cluster.bootstrap}
        self._cluster, self._take, self._unusable = cluster, take, unusable
        self._policies = Policies(lambda _ts: None, _wall_ms)
        complaints = Complaints(cluster.topics.policies, unusable)
        self._policies_tail = policies_tail(
            self._properties, cluster.topics.policies, self._policies, complaints
        )
        self._shares_tail: Tail[Standing] | None = None

    def policies(self) -> PolicySet:
        """Those in force now."""
        return self._policies.at(_wall_ms())

    async def start_policies(self) -> None:
        """Read the policies to their end.

        Raises:
            WeirError: not in time.
        """
        self._policies_tail.start(asyncio.get_running_loop())
        await _wait_for(self._policies_tail.caught_up, self._cluster.topics.policies)

    async def start_shares(self) -> None:
        """Read the shares that still stand, and go on.

        Raises:
            WeirError: not in time.
        """
        topic = self._cluster.topics.decisions
        complaints = Complaints(topic, self._unusable)

        def parse(message: Message) -> list[Standing]:
            # Of all decisions the shares alone matter, and there may be a great many others.
            if not packed(message) and not (message.value() or b"").startswith(_SHARE):
                return []
            age_ms = max(0, _wall_ms() - message.timestamp()[1])
            shares = [one for one in decisions_in(message, None, complaints) if isinstance(one, Share)]
            return [Standing(one, one.ttl_ms - age_ms) for one in shares if age_ms < one.ttl_ms]

        self._shares_tail = Tail(
            self._properties,
            topic,
            from_beginning=False,
            back_ms=LIFE_ROUNDS * round_rules(self.policies()).interval_ms,
            parse=parse,
            deliver=self._deliver,
        )
        self._shares_tail.start(asyncio.get_running_loop())
        await _wait_for(self._shares_tail.caught_up, topic)

    async def stop(self) -> None:
        """End both."""
        await self._policies_tail.stop(STOP_S)
        if self._shares_tail is not None:
            await self._shares_tail.stop(STOP_S)

    def _deliver(self, shares: list[Standing]) -> None:
        for one in shares:
            self._take(one.share.group, one.share.broker, one.share.limits, one.left_ms)


async def _wait_for(event: asyncio.Event, topic: str) -> None:
    try:
        await asyncio.wait_for(event.wait(), START_S)
    except TimeoutError as error:
        raise WeirError(f"{topic} could not be read to its end within {START_S:.0f} s") from error


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
