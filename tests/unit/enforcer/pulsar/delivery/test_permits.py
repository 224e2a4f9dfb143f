"""The arithmetic of permits: conserved, however they are given, granted and used."""

from hypothesis import given
from hypothesis import strategies as st

from enforcer.pulsar.delivery.permits import PERMITS_MAX, MeanEntry, Permits


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("give"), st.integers(1, 5_000)),
            st.tuples(st.just("grant"), st.integers(1, 200)),
            st.tuples(st.just("sent"), st.integers(1, 100)),
            st.tuples(st.just("all"), st.just(0)),
        ),
        max_size=60,
    )
)
def test_the_broker_gets_what_the_client_gives_and_no_more(steps: list[tuple[str, int]]) -> None:
    """Forwarded and kept are what was given; a grant lifts the broker to so many entries and no higher."""
    permits, given_, forwarded, sent = Permits(), 0, 0, 0
    for step, count in steps:
        if step == "give":
            permits.give(count)
            given_ += count
        elif step == "sent":
            permits.sent(count)
            sent += count
        elif step == "all":
            forwarded += permits.grant_all()
            assert permits.bank == 0
        else:
            before = permits.balance
            granted = permits.grant(count)
            forwarded += granted
            assert granted >= 0
            assert not granted or permits.balance <= count
            assert permits.bank == 0 or permits.balance >= min(count, max(before, count))
        assert forwarded + permits.bank == given_
        assert permits.balance == forwarded - sent


def test_permits_beyond_what_brokers_count_are_not_kept() -> None:
    """A client may give 32 bits of them, again and again."""
    permits = Permits()
    for _ in range(3):
        permits.give(2**32 - 1)
    assert permits.bank == PERMITS_MAX
    assert permits.grant_all() == PERMITS_MAX
    permits.give(2**32 - 1)
    permits.grant_all()
    assert permits.balance == PERMITS_MAX


def test_the_mean_follows_what_came_lately() -> None:
    """After many small entries large ones count soon; without any, one entry is planned."""
    mean = MeanEntry()
    assert mean.entries(1_000, 1_000, by_entry=False) == 1
    assert mean.units(3, by_entry=False) == (3.0, 0.0)
    for _ in range(1_000):
        mean.add(1, 10)
    assert mean.entries(1_000, float("inf"), by_entry=False) == 1_000
    for _ in range(1_000):
        mean.add(10, 100)
    assert mean.entries(1_000, float("inf"), by_entry=False) < 130
    assert mean.entries(float("inf"), 1_000.0, by_entry=False) in range(9, 13)
    assert mean.entries(7, float("inf"), by_entry=True) == 7
