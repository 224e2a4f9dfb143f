"""What the admin API makes of requests for dispatch rates, without a server."""

from functools import partial

from admin_api_kit import refusal
from each_kit import each

from enforcer.control.dispatch.rates import RatePlace, applied_rate, rate_fields
from enforcer.control.groups import Holder
from streaming.policy.policy_set import PolicySet, Section
from streaming.policy.topics import RateKind

ORDERS = Holder(section=Section.NAMESPACES, name="acme/orders")
T1 = Holder(section=Section.TOPICS, name="persistent://acme/orders/t1")
OF_ORDERS = RatePlace(holder=ORDERS, kind=RateKind.TOPIC)
OF_T1 = RatePlace(holder=T1, kind=RateKind.TOPIC)
OF_ALL = RatePlace(holder=T1, kind=RateKind.SUBSCRIPTION)
OF_SUB = RatePlace(holder=T1, kind=RateKind.SUBSCRIPTION, subscription="sub1")
TEN = {"dispatchThrottlingRateInMsg": 10}
FIVE = {"dispatchThrottlingRateInByte": 5, "ratePeriodInSecond": 2}


@each(
    ("body", "fields"),
    [
        (b"{}", {}),
        (b'{"dispatchThrottlingRateInMsg":10}', TEN),
        (b'{"dispatchThrottlingRateInMsg":10,"relativeToPublishRate":false,"ratePeriodInSecond":null}', TEN),
        (b'{"dispatchThrottlingRateInMsg":10,"across_brokers":true}', TEN | {"across_brokers": True}),
        (b'{"dispatchThrottlingRateInMsg":-1,"dispatchThrottlingRateInByte":9223372036854775807}',
         {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": 2**63 - 1}),
    ],
)  # fmt: skip
def test_absent_fields_stay_absent(body: bytes, fields: dict[str, object]) -> None:
    """Where Pulsar makes zeros of them; -1 means not limited."""
    assert rate_fields(body) == fields


@each(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"xx", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"dispatchThrottlingRateInMsg":0}', "dispatchThrottlingRateInMsg: is 0, which is ambiguous"),
        (b'{"dispatchThrottlingRateInMsg":-5}', "dispatchThrottlingRateInMsg: is -5"),
        (b'{"dispatchThrottlingRateInMsg":1.5}', "is 1.5"),
        (b'{"dispatchThrottlingRateInMsg":"5"}', "is the text '5'"),
        (b'{"dispatchThrottlingRateInMsg":2147483648}', "at most 2147483647"),
        (b'{"dispatchThrottlingRateInByte":9223372036854775808}', "dispatchThrottlingRateInByte"),
        (b'{"ratePeriodInSecond":0}', "ratePeriodInSecond: is 0"),
        (b'{"ratePeriodInSecond":-3}', "ratePeriodInSecond: is -3"),
        (b'{"relativeToPublishRate":true}', "relativeToPublishRate: publish rates are not known"),
        (b'{"relativeToPublishRate":0}', "relativeToPublishRate"),
        (b'{"bogus":3}', "bogus: is not a known key"),
        (b'{"relativeToPublishRate":true,"bogus":3}', " | bogus"),
    ],
)
def test_what_pulsar_would_take_is_refused(body: bytes, reason: str) -> None:
    """400, with what is wrong."""
    status, said = refusal(rate_fields, body)
    assert status == 400 and reason in said


def test_other_keys_of_an_entry_stay() -> None:
    """A rate is set as a whole; with the last key the entry goes."""
    entries = {ORDERS.path: {"resourcegroup": "rg1", "dispatchRate": FIVE}}
    changed = OF_ORDERS.put(entries, TEN)
    assert changed == {ORDERS.path: {"resourcegroup": "rg1", "dispatchRate": TEN}}
    assert OF_ORDERS.delete(entries) == {ORDERS.path: {"resourcegroup": "rg1"}}
    assert OF_ORDERS.delete({ORDERS.path: {"dispatchRate": {}}}) == {ORDERS.path: None}
    assert OF_ORDERS.delete({}) == {}
    assert OF_ORDERS.delete({ORDERS.path: {"resourcegroup": "rg1"}}) == {}


def test_a_subscription_has_its_own() -> None:
    """Beside others of the topic, and emptied from the inside."""
    own = OF_SUB.put({}, TEN)
    assert own == {T1.path: {"subscriptions": {"sub1": {"dispatchRate": TEN}}}}
    two = {T1.path: {"subscriptions": {"sub1": {"dispatchRate": TEN}, "sub2": {"dispatchRate": FIVE}}}}
    assert OF_SUB.at(two) == TEN
    assert OF_SUB.delete(two) == {T1.path: {"subscriptions": {"sub2": {"dispatchRate": FIVE}}}}
    assert OF_SUB.delete(own) == {T1.path: None}
    assert OF_SUB.at({T1.path: {"dispatchRate": TEN}}) is None


def test_what_applies_is_found_by_precedence() -> None:
    """Subscription, topic, namespace, broker; what sets no rate is passed over; nothing: not limited."""
    unlimited = {
        "dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False, "ratePeriodInSecond": 1,
    }  # fmt: skip
    entries: dict[str, object] = {}

    def applied(place: RatePlace) -> dict[str, object]:
        return applied_rate(PolicySet(entries), place)

    assert applied(OF_SUB) == applied(OF_T1) == unlimited
    entries |= {"broker": {"dispatchThrottlingRatePerSubscriptionInMsg": 7}}
    assert applied(OF_SUB) == unlimited | {"dispatchThrottlingRateInMsg": 7}
    entries |= {ORDERS.path: {"subscriptionDispatchRate": FIVE}}
    assert applied(OF_SUB) == unlimited | FIVE
    assert applied(OF_T1) == unlimited
    entries |= OF_ALL.put(entries, {"dispatchThrottlingRateInMsg": -1})
    assert applied(OF_SUB) == unlimited | FIVE
    entries |= OF_SUB.put(entries, TEN)
    assert applied(OF_SUB) == unlimited | TEN
    assert applied(OF_ALL) == unlimited | FIVE


@each(
    ("place", "reason"),
    [
        (RatePlace(holder=Holder(section=Section.NAMESPACES, name="acme/a b"), kind=RateKind.TOPIC),
         "Namespace"),
        (RatePlace(holder=Holder(section=Section.TOPICS, name="persistent://a/b c/t"), kind=RateKind.TOPIC),
         "Topic name is not valid"),
        (RatePlace(holder=Holder(section=Section.TOPICS, name=f"{T1.name}-partition-0"), kind=RateKind.TOPIC),
         "Not allowed to set/get topic policy for a partition"),
        (RatePlace(holder=T1, kind=RateKind.SUBSCRIPTION, subscription=""), "Subscription"),
        (RatePlace(holder=T1, kind=RateKind.SUBSCRIPTION, subscription="x" * 1_025), "Subscription"),
    ],
)  # fmt: skip
def test_names_are_checked(place: RatePlace, reason: str) -> None:
    """412, whatever is asked."""
    asked = (place.at, ()), (partial(applied_rate, place=place), ()), (place.delete, ()), (place.put, (TEN,))
    for ask, given in asked:
        status, said = refusal(ask, {}, *given)
        assert status == 412 and reason in said
