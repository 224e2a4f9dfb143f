"""Limits of groups as columns against `group_limits`."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.shares.columns import Limits, no_limits
from streaming.laws.shares.limits import limits_of
from streaming.laws.shares.table import put_limits
from streaming.policy.groups import GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet

NAMES = [
    "rg1", "rg2", "rg", "", "é", "quota/user=alice", "quota/user=bob", "quota/nonsense", "quota/",
    "quota/user=carol", "quota/user=%2C", "quota/user=<default>", "quota/client-id=app", "quota/client-id=x",
    "quota/client-id=y", "quota/user=alice,client-id=app", "quota/user=alice,client-id=x",
    "quota/user=bob,client-id=app", "quota/user=bob,client-id=x", "quota/user=carol,client-id=x",
]  # fmt: skip
rates = st.sampled_from([-1, 5, 0.3, 1e300, 1e-300])
groups = st.fixed_dictionaries({}, optional=dict.fromkeys(DIMENSIONS, rates) | {"shadow": st.booleans()})
quotas = st.fixed_dictionaries(
    {}, optional={"producer_byte_rate": rates, "consumer_byte_rate": rates, "shadow": st.booleans()}
)
PATHS: dict[str, st.SearchStrategy[Any]] = {
    **{f"resourcegroups.{name}": groups for name in NAMES},
    "quotas[user=alice]": quotas,
    "quotas[user=<default>]": quotas,
    "quotas[user=alice,client-id=app]": quotas,
    "quotas[user=alice,client-id=<default>]": quotas,
    "quotas[user=<default>,client-id=app]": quotas,
    "quotas[user=<default>,client-id=<default>]": quotas,
    "quotas[client-id=app]": quotas,
    "quotas[client-id=<default>]": quotas,
    "tenants.rg1": st.just({"resourcegroup": "rg1"}),
}


def said(limits: Limits, row: int) -> GroupLimits | None:
    """What a row says."""
    if not limits.known[row]:
        return None
    given_rates = [None if math.isnan(rate) else rate for rate in limits.rates[row].tolist()]
    return GroupLimits(rates=tuple(given_rates), shadow=bool(limits.shadow[row]))


@tries(60)
@given(st.fixed_dictionaries({}, optional=PATHS), st.permutations(NAMES), st.data())
def test_columns_say_what_the_policies_say(
    entries: dict[str, Any], names: list[str], data: st.DataObject
) -> None:
    """However many are asked for at once; rows written before are written over."""
    policies = PolicySet(entries)
    found = no_limits(len(names))
    found.known[:], found.shadow[:], found.rates[:] = True, True, 7.0
    for part in np.array_split(np.arange(len(names)), data.draw(st.integers(1, 3))):
        put_limits(found, part, pa.array(names, pa.string()), policies)
    assert [said(found, row) for row in range(len(names))] == [group_limits(policies, name) for name in names]


def test_groups_of_one_default_are_worked_out_and_remembered_once() -> None:
    """A million principals may have one each; those with an entry of their own are others."""
    rate = {"producer_byte_rate": 1}
    limits = limits_of(PolicySet({"quotas[user=a]": rate, "quotas[user=<default>]": rate}))
    names = pa.array(["quota/user=a", *(f"quota/user=u{number}" for number in range(1000))])
    for _ in range(2):
        assert set(limits.of(names).tolist()) == {0}
    assert len(limits._known) == 2
