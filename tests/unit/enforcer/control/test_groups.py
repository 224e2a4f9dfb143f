"""What the admin API makes of requests, without a server."""

import pytest
from admin_api_kit import refusal
from each_kit import each

from enforcer.control import groups
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.policy_set import Section

RG1 = "resourcegroups.rg1"
ACME = groups.Holder(section=Section.TENANTS, name="acme")
ORDERS = groups.Holder(section=Section.NAMESPACES, name="acme/orders")
LIMITS = {"publishRateInMsgs": 100, "dispatchRateInBytes": 5}


@each(
    ("body", "fields"),
    [
        (b"{}", {}),
        (b'{"publishRateInMsgs":100}', {"publishRateInMsgs": 100}),
        (b'{"publishRateInmsgs":1,"PublishRateInbytes":2}',
         {"publishRateInMsgs": 1, "publishRateInBytes": 2}),
        (b'{"DispatchRatelimitinmsgs":3,"DISPATCHRATEINBYTES":-1}',
         {"dispatchRateInMsgs": 3, "dispatchRateInBytes": -1}),
        (b'{"publishRateInMsgs":null,"bogus":null}', {}),
        (b'{"publishRateInMsgs":2.0,"publishRateInBytes":0.5}',
         {"publishRateInMsgs": 2, "publishRateInBytes": 0.5}),
        (b'{"shadow":true}', {"shadow": True}),
        (b'{"publishRateInMsgs":1,"PublishRateInMsgs":1}', {"publishRateInMsgs": 1}),
    ],
)  # fmt: skip
def test_names_of_seed_and_pulsar_are_read_in_any_case(body: bytes, fields: dict[str, object]) -> None:
    """Null is absent, whole numbers stay whole."""
    assert groups.group_fields(body) == fields


@each(
    ("body", "reason"),
    [
        (b"", "empty"), (b" \n", "empty"), (b"x", "not JSON"), (b"[]", "not a JSON object"),
        (b'{"bogus":1}', "bogus: is not a known key"),
        (b'{"publishRateInMsgs":0}', "publishRateInMsgs: is 0, which is ambiguous"),
        (b'{"publishRateInMsgs":-5}', "publishRateInMsgs: is -5"),
        (b'{"publishRateInMsgs":"abc"}', "is the text 'abc'"), (b'{"publishRateInMsgs":true}', "is true"),
        (b'{"publishRateInMsgs":3000000000}', "at most 2147483647"),
        (b'{"publishRateInBytes":9223372036854775808}', "publishRateInBytes"),
        (b'{"publishRateInMsgs":1e400}', "not JSON"), (b'{"shadow":1}', "shadow"),
        (b'{"shadow":1,"publishRateInMsgs":-5}', "publishRateInMsgs: is -5; "),
        (b'{"shadow":1,"publishRateInMsgs":-5}', " | shadow: is 1; "),
        (b'{"publishRateInMsgs":1,"PublishRateInMsgs":2}', "given twice"),
    ],
)
def test_what_pulsar_would_take_or_fail_on_is_refused(body: bytes, reason: str) -> None:
    """400, with what is wrong."""
    status, said = refusal(groups.group_fields, body)
    assert status == 400 and reason in said


def test_absent_fields_keep_their_value() -> None:
    """At first all are -1."""
    assert groups.put_group({}, "rg1", {}) == {RG1: {}}
    assert groups.group_view({RG1: {}}, "rg1") == dict.fromkeys(DIMENSIONS, -1)
    changed = groups.put_group({RG1: LIMITS}, "rg1", {"publishRateInMsgs": -1})
    assert changed == {RG1: {"publishRateInMsgs": -1, "dispatchRateInBytes": 5}}


@each("name", ["bad name", ".", "..", "quota/user=a", "a/b", "x" * 256, "é"])
def test_a_new_group_needs_a_name(name: str) -> None:
    """412; one that a policy file brought can be changed and removed whatever its name."""
    assert refusal(groups.put_group, {}, name, {})[0] == 412
    path = f"resourcegroups.{name}"
    assert groups.put_group({path: {}}, name, {}) == {path: {}}
    assert groups.delete_group({path: {}}, name) == {path: None}


def test_shadow_groups_say_so() -> None:
    """Others have Pulsar's four fields only."""
    assert groups.group_view({RG1: {"shadow": True}}, "rg1")["shadow"] is True
    assert "shadow" not in groups.group_view({RG1: {"shadow": False}}, "rg1")


def test_a_group_in_use_stays() -> None:
    """412, and it says by whom."""
    names = ("tenants.acme", *(f"namespaces.acme/n{number}" for number in range(4)))
    users = {name: {"resourcegroup": "rg1"} for name in names}
    assert refusal(groups.delete_group, {RG1: {}, **users}, "rg1") == (
        412,
        "ResourceGroup is in use by tenant acme, namespace acme/n0, namespace acme/n1 and 2 more",
    )
    for missing in (groups.delete_group, groups.group_view):
        assert refusal(missing, {}, "rg1") == (404, "ResourceGroup does not exist")


def test_attach_move_and_detach() -> None:
    """A move is one record; what else a namespace's entry says stays."""
    entries = {RG1: {}, "resourcegroups.rg2": {}, ORDERS.path: {"dispatchRate": {"ratePeriodInSecond": 1}}}
    assert groups.attached_group(entries, ORDERS) is None
    assert groups.detach(entries, ORDERS) == {}
    entries |= groups.attach(entries, ORDERS, "rg1")
    entries |= groups.attach(entries, ACME, "rg1")
    assert (groups.attached_group(entries, ORDERS), groups.attached_group(entries, ACME)) == ("rg1", "rg1")
    assert len(groups.attach(entries, ORDERS, "rg2")) == 1
    entries |= groups.attach(entries, ORDERS, "rg2")
    assert groups.attached_group(entries, ORDERS) == "rg2"
    assert groups.detach(entries, ORDERS) == {ORDERS.path: {"dispatchRate": {"ratePeriodInSecond": 1}}}
    assert groups.detach(entries, ACME) == {ACME.path: None}


@pytest.mark.parametrize(
    ("holder", "reason"),
    [
        (groups.Holder(section=Section.TENANTS, name="bad name"), "Tenant name is not valid"),
        (groups.Holder(section=Section.NAMESPACES, name="acme/bad ns"), "Namespace name is not valid"),
        (ORDERS, "ResourceGroup does not exist"),
    ],
)
def test_attaching_needs_names_and_a_group(holder: groups.Holder, reason: str) -> None:
    """412 with Pulsar's words."""
    assert refusal(groups.attach, {}, holder, "nope") == (412, reason)
