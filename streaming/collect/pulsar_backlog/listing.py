"""Which topics a Pulsar cluster has, partitions one by one; Pulsar's own are left out."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from streaming.collect.backlog.cluster import RoundResult
from streaming.collect.pulsar.readings import is_users
from streaming.collect.pulsar.rest import Rest, RestError, answer_of, part
from streaming.contract.names import NAMESPACE

SYSTEM_NAMESPACE: Final = "pulsar/system"


class Listing:
    """The topics of a cluster, round by round."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._known: dict[str, list[str]] = {}

    @property
    def known(self) -> Sequence[str]:
        """The topics of the last list; of namespaces that could not be listed, of an earlier one."""
        return [topic for topics in self._known.values() for topic in topics]

    async def list(self, looked: RoundResult) -> Sequence[str]:
        """The full names of all that could be listed; `looked` is told of others, at least so many, and why.

        Raises:
            RestError: nothing could be listed.
        """
        tenants = await self._rest.names("/admin/v2/tenants")
        found = await self._all(f"/admin/v2/namespaces/{part(one)}" for one in tenants)
        lost_tenants = [tenant for tenant, one in zip(tenants, found, strict=True) if _failed(one)]
        namespaces = _users(name for one in found if not isinstance(one, RestError) for name in one)
        lists = await self._all(
            f"/admin/v2/persistent/{'/'.join(map(part, one.split('/')))}" for one in namespaces
        )
        failures = [one for one in (*found, *lists) if _failed(one)]
        if failures and not any(isinstance(one, list) for one in (*lists, *(() if namespaces else found))):
            raise failures[0]
        looked.failures += map(str, failures)
        before, self._known = self._known, {}
        topics = []
        for namespace, one in zip(namespaces, lists, strict=True):
            if _failed(one):
                self._known[namespace] = before.get(namespace, [])
                # Nobody knows how many there are now; one is always said.
                looked.unread += max(1, len(self._known[namespace]))
            elif not isinstance(one, RestError):
                self._known[namespace] = sorted({topic for topic in one if is_users(topic)})
                topics += self._known[namespace]
        for tenant in lost_tenants:
            kept = {name: one for name, one in before.items() if name.startswith(f"{tenant}/")}
            self._known |= kept
            looked.unread += max(1, sum(map(len, kept.values())))
        return topics

    async def _all(self, paths: Iterable[str]) -> Sequence[Any]:
        """The names that are listed at each, or why they are not known."""
        return await asyncio.gather(*(answer_of(self._rest.names(path)) for path in paths))


def _failed(answer: Any) -> bool:
    """Whether it is a failure, and not only that somebody has gone."""
    return isinstance(answer, RestError) and not answer.absent


def _users(namespaces: Iterable[str]) -> list[str]:
    """Namespaces of users, in the form that Pulsar has had since 2.0."""
    return [name for name in namespaces if NAMESPACE.fullmatch(name) and name != SYSTEM_NAMESPACE]
