"""The limits of the admin API's store that need no broker."""

import asyncio

import orjson
import pytest

from enforcer.control.groups import Changes, Entries, Unavailable
from enforcer.control.metrics import AdminMetrics
from enforcer.control.store import PolicyStore, updates_of
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import PolicyLog, Update


def nothing(_entries: Entries) -> Changes:
    """A change that must not be asked for here."""
    raise AssertionError


def store() -> PolicyStore:
    """A store that reads nothing."""
    return PolicyStore(Cluster("127.0.0.1:1"), metrics=AdminMetrics())


async def test_before_the_policies_are_read_nothing_is_answered() -> None:
    """An empty table would be a wrong answer, and a change made from it would undo what is there."""
    unread = store()
    with pytest.raises(Unavailable, match="not been read yet"):
        _ = unread.entries
    with pytest.raises(Unavailable, match="not been read yet"):
        await unread.change(nothing, "ops", "")


async def test_changes_wait_for_their_turn_within_a_limit_and_not_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one beyond CHANGES_MAX is refused at once, the others when their time is over."""
    monkeypatch.setattr("enforcer.control.store.CHANGES_MAX", 2)
    monkeypatch.setattr("enforcer.control.store.CHANGE_S", 0.1)
    busy = store()
    busy.tail.caught_up.set()
    await busy._one_at_a_time.acquire()
    waiting = [asyncio.create_task(busy.change(nothing, "ops", "")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="2 changes are under way already"):
        await busy.change(nothing, "ops", "")
    for change in waiting:
        with pytest.raises(Unavailable, match="took too long"):
            await change
    assert busy._changing == 0


def test_what_stands_there_is_not_written_again() -> None:
    """Else a client that repeats itself fills the topic; what another way has set is taken over."""
    log, value = PolicyLog(), {"resourcegroup": "g"}
    for path, origin in (("tenants.a", "admin"), ("tenants.b", "file")):
        record = {"type": "policy", "path": path, "value": value, "origin": origin}
        log.take(orjson.dumps(record), 1_000)
    taken_over = [Update(path="tenants.b", value=value)]
    assert updates_of(log, {"tenants.a": value, "tenants.b": value}) == taken_over
    for changed in ({"resourcegroup": "h"}, None):
        assert updates_of(log, {"tenants.a": changed}) == [Update(path="tenants.a", value=changed)]
