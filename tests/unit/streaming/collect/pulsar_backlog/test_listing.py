"""Lists of topics: of all namespaces, and what is known of those that cannot be listed."""

import pytest
from limits_kit import rest_of, run
from pulsar_backlog_kit import FakeBacklogs, FakeTopic

from streaming.collect.backlog.cluster import RoundResult
from streaming.collect.pulsar.rest import RestError
from streaming.collect.pulsar_backlog.cluster import Listing

A1, A2, B1 = "persistent://a/x/1", "persistent://a/x/2", "persistent://b/y/1"


def listing_of(fake: FakeBacklogs) -> Listing:
    """Of a cluster in memory."""
    return Listing(rest_of(fake))


def listed(listing: Listing) -> tuple[list[str], int, int]:
    """Topics, how many are unread besides, and how many failures are told."""
    looked = RoundResult()
    topics = run(listing.list(looked))
    return sorted(topics), looked.unread, len(looked.failures)


def test_all_namespaces_are_listed() -> None:
    """Each topic once; namespaces in forms that Pulsar had before 2.0 are not asked."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, A2, B1)})
    fake.namespaces |= {"b/standalone/old"}
    assert listed(listing_of(fake)) == ([A1, A2, B1], 0, 0)
    assert not any("old" in path for _, path in fake.calls)


@pytest.mark.parametrize("path", ["/admin/v2/persistent/a/x", "/admin/v2/namespaces/a"])
def test_what_cannot_be_listed_is_unread_and_stays_known(path: str) -> None:
    """As many as there were; at least one if nobody knows; round after round."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, A2, B1)})
    listing = listing_of(fake)
    fake.fail = lambda _method, asked: 403 if asked == path else 0
    assert listed(listing) == ([B1], 1, 1)
    fake.fail = lambda _method, _asked: 0
    listed(listing)
    fake.fail = lambda _method, asked: 403 if asked == path else 0
    for _ in range(2):
        assert listed(listing) == ([B1], 2, 1)
        assert set(listing.known) == {A1, A2, B1}


def test_a_namespace_that_has_gone_is_no_failure() -> None:
    """Its topics are gone with it."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, B1)})
    fake.fail = lambda _method, asked: 404 if asked == "/admin/v2/persistent/a/x" else 0
    listing = listing_of(fake)
    assert listed(listing) == ([B1], 0, 0)
    assert listing.known == [B1]


@pytest.mark.parametrize("start", ["/admin/v2/persistent", "/admin/v2/namespaces", "/admin/v2/tenants"])
def test_nothing_to_list_raises(start: str) -> None:
    """A token without rights is no empty cluster."""
    fake = FakeBacklogs({name: FakeTopic({1: 1}) for name in (A1, B1)})
    fake.fail = lambda _method, asked: 403 if asked.startswith(start) else 0
    with pytest.raises(RestError, match="because 403"):
        listed(listing_of(fake))


def test_an_empty_cluster_is_none_of_these() -> None:
    """It is listed, and has nothing."""
    assert listed(listing_of(FakeBacklogs())) == ([], 0, 0)
