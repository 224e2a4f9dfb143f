"""Backlog quotas: bodies, places, precedence."""

from typing import Any

import orjson
import pytest
from admin_api_kit import refusal
from each_kit import each

from enforcer.control.backlog import quotas
from enforcer.control.groups import Holder
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import BacklogKind

NAMESPACE = Holder(section=Section.NAMESPACES, name="acme/orders")
TOPIC = Holder(section=Section.TOPICS, name="persistent://acme/orders/t1")
SIZE = quotas.QuotaPlace(holder=NAMESPACE, kind=BacklogKind.SIZE)
AGE = quotas.QuotaPlace(holder=NAMESPACE, kind=BacklogKind.AGE)
OF_TOPIC = quotas.QuotaPlace(holder=TOPIC, kind=BacklogKind.AGE)
HOLD = "producer_request_hold"


def read(place: quotas.QuotaPlace, **fields: Any) -> dict[str, Any]:
    """A body, read."""
    return quotas.quota_fields(orjson.dumps(fields), place)


def test_what_pulsar_admin_sends_is_taken() -> None:
    """It says both limits, and limitSize under its old name too; the other one is left out."""
    sent = {"limit": 10_485_760, "limitSize": 10_485_760, "limitTime": -1, "policy": HOLD}
    assert read(SIZE, **sent) == {"limitSize": 10_485_760, "policy": HOLD}
    sent = {"limit": -1, "limitSize": -1, "limitTime": 3_600, "policy": HOLD}
    assert read(AGE, **sent) == {"limitTime": 3_600, "policy": HOLD}
    assert read(AGE, limitSize=0, limitTime=0, policy=HOLD) == {"limitTime": 0, "policy": HOLD}
    assert read(SIZE, limit=7, limitTime=None, policy=HOLD) == {"limitSize": 7, "policy": HOLD}


@each(
    ("place", "fields", "said"),
    [
        (SIZE, {"policy": HOLD}, "limitSize: is missing"),
        (AGE, {"policy": HOLD}, "limitTime: is missing"),
        (AGE, {"limitSize": -1, "policy": HOLD}, "limitTime: is missing"),
        (SIZE, {"limitSize": -2, "policy": HOLD}, "limitSize: is -2"),
        (SIZE, {"limitSize": True, "policy": HOLD}, "limitSize: is true"),
        (SIZE, {"limitSize": 1.0, "policy": HOLD}, "limitSize: is 1.0"),
        (SIZE, {"limitSize": 2**63, "policy": HOLD}, "limitSize: is"),
        (AGE, {"limitTime": 2**31, "policy": HOLD}, "limitTime: expected at most 2147483647"),
        (SIZE, {"limitSize": 5, "limitTime": 60, "policy": HOLD}, "backlogQuotaType=message_age"),
        (AGE, {"limitTime": 5, "limit": 60, "policy": HOLD}, "backlogQuotaType=destination_storage"),
        (SIZE, {"limitSize": 5, "limitTime": False, "policy": HOLD}, "limitTime: is false"),
        (SIZE, {"limitSize": 5, "limit": 6, "policy": HOLD}, "limit: is limitSize's old name"),
        (SIZE, {"limitSize": 5, "policy": HOLD, "actions": 1}, "actions: is 1"),
        (SIZE, {"limitSize": 5, "policy": HOLD, "bogus": 1}, "bogus: is not a known key"),
        (SIZE, {"limitSize": 5}, "Set namespace[acme/orders] backlog quota failed because the data "
         "validation failed. the attribute policy cannot be null"),
        (SIZE, {"limitSize": 5, "policy": "bogus"}, "the attribute policy cannot be null; expected one of"),
        (SIZE, {"limitSize": 5, "policy": [HOLD]}, "the attribute policy cannot be null"),
        (SIZE, {}, "the attribute policy cannot be null"),
        (OF_TOPIC, {}, "Set namespace[acme/orders] backlog quota failed"),
    ],
)  # fmt: skip
def test_bad_bodies(place: quotas.QuotaPlace, fields: dict[str, Any], said: str) -> None:
    """400; above all an absent limit, which Pulsar takes for 0."""
    status, reason = refusal(quotas.quota_fields, orjson.dumps(fields), place)
    assert status == 400 and said in reason


@pytest.mark.parametrize("body", [b"", b"xx", b"[]", b"\xff"])
def test_what_is_no_object(body: bytes) -> None:
    """400."""
    assert refusal(quotas.quota_fields, body, SIZE)[0] == 400


def test_a_quota_replaces_the_one_before_but_for_what_pulsar_cannot_say() -> None:
    """`actions` stays through a call of pulsar-admin; other keys of the entry stay anyway."""
    entries: dict[str, Any] = {"namespaces.acme/orders": {"resourcegroup": "rg1"}}
    first = read(SIZE, limitSize=5, policy=HOLD, actions=True)
    entries |= SIZE.put(entries, first)
    entries |= AGE.put(entries, read(AGE, limitTime=60, policy=HOLD))
    entries |= SIZE.put(entries, read(SIZE, limitSize=6, policy="producer_exception"))
    assert entries["namespaces.acme/orders"] == {
        "resourcegroup": "rg1",
        "backlogQuotaMap": {
            "destination_storage": {"limitSize": 6, "policy": "producer_exception", "actions": True},
            "message_age": {"limitTime": 60, "policy": HOLD},
        },
    }
    assert quotas.quotas_at(entries, NAMESPACE)["destination_storage"] == {
        "limit": 6, "limitSize": 6, "limitTime": -1, "policy": "producer_exception", "actions": True,
    }  # fmt: skip
    entries |= SIZE.put(entries, read(SIZE, limitSize=6, policy=HOLD, actions=False))
    assert "actions" not in quotas.quotas_at(entries, NAMESPACE)["destination_storage"]
    for place, left in ((SIZE, ["message_age"]), (AGE, [])):
        entries |= place.delete(entries)
        assert sorted(quotas.quotas_at(entries, NAMESPACE)) == left
        assert place.delete(entries) == {}
    assert entries == {"namespaces.acme/orders": {"resourcegroup": "rg1"}}


def test_what_applies() -> None:
    """By type: the topic's, the namespace's, the broker's; -1 and the broker's policy where nothing does."""
    assert quotas.applied_quotas(PolicySet(), TOPIC) == {
        kind.value: {"limit": -1, "limitSize": -1, "limitTime": -1, "policy": HOLD} for kind in BacklogKind
    }
    entries: dict[str, Any] = {
        "broker": {
            "backlogQuotaDefaultLimitSecond": 90,
            "backlogQuotaDefaultRetentionPolicy": "producer_exception",
        },
        "namespaces.acme/orders": {
            "backlogQuotaMap": {"destination_storage": {"limitSize": 5, "policy": HOLD, "actions": True}}
        },
        "topics.persistent://acme/orders/t1": {
            "backlogQuotaMap": {"destination_storage": {"limitSize": -1, "policy": "producer_exception"}}
        },
    }
    assert quotas.applied_quotas(PolicySet(entries), TOPIC) == {
        "destination_storage": {"limit": 5, "limitSize": 5, "limitTime": -1, "policy": HOLD, "actions": True},
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 90, "policy": "producer_exception"},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["persistent://acme/orders/t1-partition-0", "t1"])
def test_names_that_have_no_quota_of_their_own(name: str) -> None:
    """412, as in Pulsar."""
    holder = Holder(section=Section.TOPICS, name=name)
    for act in (
        lambda: quotas.quotas_at({}, holder),
        lambda: quotas.applied_quotas(PolicySet(), holder),
        lambda: quotas.QuotaPlace(holder=holder, kind=BacklogKind.SIZE).put({}, {}),
        lambda: quotas.QuotaPlace(holder=holder, kind=BacklogKind.SIZE).delete({}),
    ):
        assert refusal(act)[0] == 412
