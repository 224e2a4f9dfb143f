"""Written admissions against orjson: the same bytes for the same decision."""

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Shard, quota, records_of, refund, replay_all, request
from property_kit import tries

from streaming.columns.records import Records
from streaming.laws.law import StepContext
from streaming.laws.shard import step

TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\", "\n", "\x00", "\x7f", "é", "😀", "a,b=<%"])
FIELDS = st.fixed_dictionaries(
    {"user": TEXTS, "items": st.lists(st.builds(lambda n, m: {"name": n, "mutations": m}, TEXTS,
     st.integers(0, 40) | st.sampled_from([2**53 + 1, 2**63 - 1])), max_size=3)},
    optional={
        "id": TEXTS, "proxy": TEXTS, "client_id": TEXTS, "strict": st.booleans(), "late": st.booleans(),
        "validate_only": st.booleans(), "answered": st.just("not_before"),
        "on_late": st.sampled_from(["allow", "reject"]), "deadline_ms": st.integers(0, 2**62),
    },
)  # fmt: skip
INITIAL = {
    "quotas[user=<default>]": quota(0.7, 30, shadow=True),
    "quotas[user=<default>,client-id=<default>]": quota(3, 9, algorithm="sampled_rate"),
    "quotas[user=a]": quota(1e-7, 5),
}


def log(events: list[dict[str, Any]]) -> Records:
    asked = [{"type": "request", "ts": T0 + n * 700} | event for n, event in enumerate(events)]
    return records_of(asked, times=[T0] * len(events))


@given(st.lists(FIELDS, max_size=8), st.booleans())
@tries(300)
def test_what_is_written_is_what_orjson_would_write(events: list[dict[str, Any]], limited: bool) -> None:
    """Read and written again every decision has the same bytes; ids, keys and times beside it are its own."""
    outputs = replay_all(log(events), StepContext(initial=INITIAL if limited else {}, replay=True))
    assert len(outputs) == len(outputs.value) == len(events)
    decisions = [orjson.loads(value) for value in outputs.value]
    assert [orjson.dumps(decision) for decision in decisions] == outputs.value
    assert [decision["id"] for decision in decisions] == outputs.listed("id")
    assert [decision["subject"] for decision in decisions] == outputs.listed("key")
    assert [decision["ts"] for decision in decisions] == outputs.listed("ts")
    assert [event.get("id", f"weir.requests-0-{n}") for n, event in enumerate(events)] == outputs.listed("id")
    for event, decision in zip(events, decisions, strict=True):
        names = [item["name"] for item in event["items"]]
        assert set(decision["rejected"]) <= set(names)
        assert decision["proxy"] == event.get("proxy", "")
        assert decision.get("answered") == event.get("answered")


def test_all_keys_in_the_order_of_the_contract() -> None:
    """A bucket, a sampled rate, nobody limited."""
    shard = Shard(INITIAL, replay=False)
    asked = [
        request("a", 0, 40, 1, subject="user=x"), request("b", 0, 1, subject="user=x,client-id=y"),
        request("c", 0, 2, subject=""),
    ]  # fmt: skip
    bucket, sampled, free = shard.step(asked)
    assert bucket == {
        "type": "admission", "id": "a", "ts": T0, "proxy": "p1", "subject": "user=x",
        "algorithm": "token_bucket", "outcome": "reject", "throttle_time_ms": 14286, "rejected": ["a-1"],
        "tokens": -10.0, "rate": 40 / 11, "limit": 0.7, "mutations": 40, "policy_version": 1, "shadow": True,
    }  # fmt: skip
    assert list(bucket) == [
        "type", "id", "ts", "proxy", "subject", "algorithm", "outcome", "throttle_time_ms", "rejected",
        "tokens", "rate", "limit", "mutations", "policy_version", "shadow",
    ]  # fmt: skip
    assert list(sampled) == [name for name in bucket if name != "tokens"]
    assert (sampled["algorithm"], sampled["rate"], sampled["limit"]) == ("sampled_rate", 1 / 3, 3.0)
    assert list(free) == list(sampled)[:9] + list(sampled)[10:]
    assert (free["subject"], free["algorithm"], free["limit"], free["mutations"]) == ("", None, None, 2)


def test_charged_mutations_beyond_64_bits_are_cut() -> None:
    """Each item may be as large as an integer can be."""
    (decision,) = Shard({}).step([request("a", 0, 2**63 - 1, 2**63 - 1, 5)])
    assert decision["mutations"] == 2**63 - 1
    (decision,) = Shard({"quotas[user=alice]": quota(1, 10)}).step(
        [refund(0, 0, 2**63 - 1), request("a", 0, 1)]
    )
    assert decision["tokens"] == 9.0


@pytest.mark.parametrize("arrow", [pa.binary(), pa.large_binary()])
def test_records_may_come_as_arrow_and_numpy_columns(arrow: pa.DataType) -> None:
    """As Spark has them: in chunks, that may be stretches of larger arrays."""
    events = [{"user": "a", "items": [{"name": "x", "mutations": n}], "id": f"e{n}"} for n in range(9)]
    events[4]["items"] = 5  # type: ignore[assignment]
    records, context = log(events), StepContext(initial=INITIAL, fail_fast=True)
    body, expected = step("mutation", 0, None, records, context)
    whole = pa.array([b"before", *records.value, b"after"], type=arrow)
    value = pa.chunked_array([whole.slice(1, 4), whole.slice(5, 0), whole.slice(5, 5)])
    columns = Records(
        topic=records.topic, partition=np.zeros(9, dtype=np.int32), offset=np.arange(9),
        ts=np.full(9, T0), value=value, broadcast=np.zeros(9, dtype=np.bool_),
    )  # fmt: skip
    found_body, found = step("mutation", 0, None, columns, context)
    sources = expected.listed("source")
    assert (found_body, found.value, found.listed("source")) == (body, expected.value, sources)
