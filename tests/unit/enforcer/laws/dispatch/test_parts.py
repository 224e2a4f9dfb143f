"""Parts of several proxies: never more than the whole, whoever delivers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from enforcer.laws.dispatch.parts import WHOLE, Parts

NAMES = [f"p{number}" for number in range(8)]
DELIVERIES = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 3), st.tuples(*[st.sampled_from([0, 1, 7, 90, 10**12])] * 2)
)


@tries(200)
@given(st.lists(DELIVERIES, max_size=40), st.integers(8, 12))
def test_they_add_up_to_the_whole_at_most(
    deliveries: list[tuple[str, int, tuple[int, int]]], proxies: int
) -> None:
    """Those of all who are alive; and each has some, so nobody waits for ever."""
    parts, period = Parts(), 5
    for name, later, units in deliveries:
        period += later
        parts.add(name, period, units, (100, 10_000))
        for dimension in (0, 1):
            found = [parts.of(name, dimension, proxies) for name in [*NAMES, *"abcd"][:proxies]]
            assert min(found) >= 1 and WHOLE * 0.97 <= sum(found) <= WHOLE


def test_deliverers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones count as if they had delivered nothing."""
    monkeypatch.setattr("enforcer.laws.dispatch.parts.DELIVERERS_MAX", 2)
    parts = Parts()
    for period in (1, 2):
        for name in "abc":
            parts.add(name, period, (30, 0), (100, 0))
    assert [parts.of(name, 0, 4) for name in "abcd"] == [490_000, 490_000, 10_000, 10_000]
