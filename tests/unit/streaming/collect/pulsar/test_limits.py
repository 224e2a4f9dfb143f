"""Limiters, their names and paths, and rates in Pulsar's whole numbers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.collect.pulsar.limits import (
    MSGS_MAX,
    NONE,
    Kind,
    LimiterRate,
    Rates,
    Slot,
    body_of,
    is_real_change,
    rates_in,
)

TOPIC = "persistent://a/b/t é%2F"
SLOTS = [
    Slot("a/b", "", "", Kind.PUBLISH),
    Slot("a/b", TOPIC, "", Kind.DISPATCH),
    Slot("a/b", TOPIC, "", Kind.SUBSCRIPTION),
    Slot("a/b", "persistent://a/b/t", "my sub/1", Kind.SUBSCRIPTION),
]


def test_paths() -> None:
    """As Pulsar has them; names are quoted."""
    assert [slot.path for slot in SLOTS] == [
        "/admin/v2/namespaces/a/b/publishRate",
        "/admin/v2/persistent/a/b/t%20%C3%A9%252F/dispatchRate",
        "/admin/v2/persistent/a/b/t%20%C3%A9%252F/subscriptionDispatchRate",
        "/admin/v2/persistent/a/b/t/my%20sub%2F1/dispatchRate",
    ]


@pytest.mark.parametrize("slot", [*SLOTS, SLOTS[3]._replace(subscription=" s ")], ids=str)
def test_names_read_back(slot: Slot) -> None:
    """Notes are kept by name; a limit of a topic with a space in its own was nobody's after a restart."""
    assert Slot.parse(slot.name) == slot


@pytest.mark.parametrize(
    "name",
    [
        "", "publishRate", "publishRate x", "other a/b", "publishRate persistent://a/b/t s",
        "publishRate persistent://a/b/t%2Fs",
    ],
)  # fmt: skip
def test_what_is_no_name_is_none(name: str) -> None:
    """Anybody may write to a namespace's properties."""
    assert Slot.parse(name) is None


@given(st.floats(0.001, 1e12), st.sampled_from(Kind))
def test_rates_are_never_unlimited_and_rarely_above(rate: float, kind: Kind) -> None:
    """Pulsar takes 0 for no limit; only what is below 1 a minute, or 1 a second for publishing, is raised."""
    rates = LimiterRate(rate, None).rates(kind)
    assert 1 <= rates.msgs <= MSGS_MAX and rates.size == NONE
    if rate >= (1.0 if kind is Kind.PUBLISH else 1 / 60):
        assert rates.msgs / rates.period_s <= rate * (1 + 1e-6)


def test_a_policy_keeps_its_period() -> None:
    """10 per 5 s is not 2 a second: the burst is another."""
    assert LimiterRate(2.0, None, True, 5).rates(Kind.DISPATCH) == Rates(10, NONE, 5)


@pytest.mark.parametrize(
    "answer", [None, 5, {}, {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": -1},
               {"dispatchThrottlingRateInMsg": "7"}],
)  # fmt: skip
def test_what_limits_nothing_is_nothing(answer: Any) -> None:
    """Also an answer of another form."""
    assert rates_in(answer) is None


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 60), st.sampled_from(Kind))
def test_bodies_read_back(msgs: int, size: int, period_s: int, kind: Kind) -> None:
    """What was posted is recognized in what is got."""
    rates = Rates(msgs, size, 1 if kind is Kind.PUBLISH else period_s)
    assert rates_in(body_of(kind, rates)) == rates


def test_the_change_rule() -> None:
    """More than 5 % of what is held, in either dimension; a dimension that comes or goes always."""
    held = Rates(1_000, 2_000)
    small = [Rates(1_050, 2_000), Rates(950, 2_000), Rates(2_000, 4_000, 2)]
    real = [Rates(1_051, 2_000), Rates(949, 2_000), Rates(1_000, 2_101), Rates(1_000, NONE)]
    assert not any(is_real_change(held, one, 0.05) for one in small)
    assert all(is_real_change(held, one, 0.05) for one in real)
    assert is_real_change(held, Rates(2_000, 4_000, 2), 0.0)
