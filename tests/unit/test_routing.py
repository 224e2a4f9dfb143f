"""Where records go: law, home, shard."""

import orjson
from hypothesis import given
from hypothesis import strategies as st
from law_kit import policy, quota, request

from streaming.contract.policy_timeline import PolicyTimeline
from streaming.laws.routing import route, shard_of

TIMELINE = PolicyTimeline({"quotas[user=alice]": quota(1)})


def test_a_request_goes_to_the_home_of_its_quota() -> None:
    """The quota entity; without one the user, so that the unlimited do not share one shard."""
    limited = route(orjson.dumps(request("a", 0, 1)), TIMELINE, "f:1")
    assert (limited.law, limited.home, limited.subject) == ("mutation", "user=alice", "user=alice")
    free = route(orjson.dumps(request("a", 0, 1, user="bob")), TIMELINE, "f:1")
    assert (free.home, free.subject) == ("user=bob", "")


def test_a_policy_goes_everywhere_and_garbage_to_some_shard() -> None:
    """What cannot be read is buried by the shard that its name falls on."""
    assert route(orjson.dumps(policy(0, "broker", {})), TIMELINE, "f:1").broadcast
    garbage = route(b"{", TIMELINE, "f:2")
    assert (garbage.home, garbage.subject, garbage.broadcast) == ("f:2", None, False)


@given(st.text(), st.integers(1, 64))
def test_a_home_has_one_shard(home: str, shards: int) -> None:
    """Any text, any number of shards."""
    assert 0 <= shard_of(home, shards) < shards
    assert shard_of(home, shards) == shard_of(home, shards)


def test_the_shard_is_sparks_crc32() -> None:
    """CRC-32 of the UTF-8 bytes, as Spark's built-in computes it: a known value."""
    assert shard_of("123456789", 2**32) == 0xCBF43926
