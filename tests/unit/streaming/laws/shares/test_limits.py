"""Limits as columns against `group_limits`: the same for every name, however many are asked for."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.usage_events import DIMENSIONS
from streaming.laws.shares import limits as shares_limits
from streaming.laws.shares.limits import GroupPolicies, Limits, no_limits
from streaming.policy.groups import GroupLimits, group_limits
from streaming.policy.policy_set import PolicySet

NAMES = ["rg1", "rg2", "rg", "", "é", "quota/user=alice", "quota/user=bob", "quota/nonsense", "quota/"]
rates = st.sampled_from([-1, 5, 0.3, 1e300, 1e-300])
groups = st.fixed_dictionaries({}, optional=dict.fromkeys(DIMENSIONS, rates) | {"shadow": st.booleans()})
quotas = st.fixed_dictionaries(
    {}, optional={"producer_byte_rate": rates, "consumer_byte_rate": rates, "shadow": st.booleans()}
)
PATHS: dict[str, st.SearchStrategy[Any]] = {
    **{f"resourcegroups.{name}": groups for name in NAMES},
    "quotas[user=alice]": quotas,
    "quotas[user=<default>]": quotas,
    "tenants.rg1": st.just({"resourcegroup": "rg1"}),
}


def said(limits: Limits, row: int) -> GroupLimits | None:
    """What a row says."""
    if not limits.known[row]:
        return None
    given_rates = [None if math.isnan(rate) else rate for rate in limits.rates[row].tolist()]
    return GroupLimits(rates=tuple(given_rates), shadow=bool(limits.shadow[row]))


@pytest.mark.parametrize("few", [1, 10**6])
@tries(60)
@given(st.fixed_dictionaries({}, optional=PATHS), st.permutations(NAMES), st.data())
def test_columns_say_what_the_contract_says(
    few: int, entries: dict[str, Any], names: list[str], data: st.DataObject
) -> None:
    """One by one (many policies for few names) and by the index; rows written before are written over."""
    policies = PolicySet(entries)
    found = no_limits(len(names))
    found.known[:], found.shadow[:], found.rates[:] = True, True, 7.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares_limits, "FEW", few)
        table = GroupPolicies(policies)
        for part in np.array_split(np.arange(len(names)), data.draw(st.integers(1, 3))):
            table.put(pa.array([names[row] for row in part], pa.string()), part, found)
    assert [said(found, row) for row in range(len(names))] == [group_limits(policies, name) for name in names]


def test_no_more_quotas_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One beyond is found anew, and right, each time; other groups take no place."""
    monkeypatch.setattr(shares_limits, "MAX_QUOTAS", 2)
    policies = PolicySet({"quotas[user=<default>]": {"producer_byte_rate": 5}, "resourcegroups.rg1": {}})
    names = ["rg1", *(f"quota/user=u{number}" for number in range(4))]
    table = GroupPolicies(policies)
    for _ in range(2):
        found = no_limits(len(names))
        table.put(pa.array(names), np.arange(len(names)), found)
        assert [said(found, row) for row in range(len(names))] == [
            group_limits(policies, name) for name in names
        ]
        assert list(table._quotas) == names[1:3]
