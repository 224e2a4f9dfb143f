"""Quotas as columns against the policies' own search."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries

from streaming.contract.events import Request
from streaming.laws.mutation.intake import routing_keys
from streaming.laws.mutation.limits import Quotas
from streaming.laws.mutation.requests import RequestRows
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import Algorithm, PolicySet
from streaming.policy.schema import sampled_windows
from streaming.policy.timeline import PolicyTimeline

PARTS = ["a", "b", "%2C", "é", "", "<default>"]
NAMES = st.sampled_from(["a", "b", ",", "%2C", "é", "", "<default>", "="])
ENTITIES = st.builds(
    lambda user, client: ",".join(
        part for part in (user and f"user={user}", client and f"client-id={client}") if part
    ),
    st.none() | st.sampled_from(PARTS),
    st.none() | st.sampled_from(PARTS),
).filter(bool)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "controller_mutation_rate": st.sampled_from([-1, 1, 0.5, 7]),
        "controller_mutation_burst": st.sampled_from([3, 40]),
        "algorithm": st.sampled_from([algorithm.value for algorithm in Algorithm]),
        "shadow": st.booleans(),
        "producer_byte_rate": st.just(5),
    },
)


@given(st.dictionaries(ENTITIES, VALUES, max_size=8), st.lists(ENTITIES | st.text(max_size=5), max_size=8))
@tries(600)
def test_every_subject_finds_the_quota_that_its_policies_name(
    entries: dict[str, dict[str, Any]], subjects: list[str]
) -> None:
    """Eight levels, defaults, entries without a mutation rate, texts that are no subject."""
    policies = PolicySet({"broker": {}, **{f"quotas[{name}]": value for name, value in entries.items()}})
    quotas = Quotas(policies)
    numbers = quotas.of(pa.array([*subjects, ""], type=pa.string())).tolist()
    assert numbers.pop() == -1
    for subject, number in zip(subjects, numbers, strict=True):
        quota = policies.mutation_quota_of_subject(subject)
        assert (quota is None) == (number < 0)
        if quota is not None:
            samples = sampled_windows(quota.rate, quota.burst) if quota.algorithm == "sampled_rate" else 0
            found = (quotas.rate[number], quotas.burst[number], quotas.samples[number], quotas.shadow[number])
            assert found == (quota.rate, quota.burst, samples, quota.shadow)


@given(
    st.dictionaries(ENTITIES, VALUES, max_size=8),
    st.lists(st.tuples(NAMES, NAMES), min_size=1),
    st.booleans(),
)
@tries(600)
def test_everybody_who_asks_is_charged_as_their_policies_say(
    entries: dict[str, dict[str, Any]], asking: list[tuple[str, str]], changed: bool
) -> None:
    """The subject that `mutation_quota` names, under the policies of each request's own time."""
    timeline = PolicyTimeline({f"quotas[{name}]": value for name, value in entries.items()})
    if changed:
        timeline.apply("quotas[user=a]", {"controller_mutation_rate": 3}, 5)
        timeline.apply("quotas[user=<default>]", None, 7)
    rows = RequestRows()
    for ts, (user, client_id) in enumerate(asking):
        event = {"type": "request", "ts": ts, "user": user, "client_id": client_id, "items": []}
        parsed = LAWS.parse(orjson.dumps(event), default_id="", default_ts=None)
        assert isinstance(parsed, Request)
        rows.put(ts, parsed)
    found = routing_keys(rows.finish(), np.arange(len(asking)), timeline, stamped=True)
    assert len(set(found.names.to_pylist())) == len(found.names)
    for ts, (user, client_id) in enumerate(asking):
        quota = timeline.at(ts).mutation_quota(user, client_id)
        assert found.names[int(found.of[ts])].as_py() == ("" if quota is None else quota.subject)


def test_a_great_many_entries_are_all_found() -> None:
    """The table stays right when it is well filled."""
    entries = {f"quotas[user=u{n}]": {"controller_mutation_rate": n + 1} for n in range(5000)}
    quotas = Quotas(PolicySet(entries))
    numbers = quotas.of(pa.array([f"user=u{n}" for n in range(5001)]))
    assert quotas.rate[numbers[:-1]].tolist() == list(range(1, 5001))
    assert numbers[-1] == -1
