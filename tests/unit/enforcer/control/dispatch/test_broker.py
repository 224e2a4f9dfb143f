"""The broker's settings as Pulsar's dynamic configuration."""

from admin_api_kit import refusal
from each_kit import each

from enforcer.control.dispatch.broker import NAMES, delete_value, put_value, values
from streaming.policy.files import check_entry

HELD = {"broker": {"dispatchThrottlingRateInMsg": 5, "preciseBacklogSize": True}}


@each(
    ("name", "text", "value"),
    [
        ("dispatchThrottlingRateInMsg", "5", 5),
        ("dispatchThrottlingRatePerTopicInByte", "-1", -1),
        ("dispatchThrottlingOnBatchMessageEnabled", "true", True),
        ("dispatchThrottlingOnNonBacklogConsumerEnabled", "False", False),
        ("backlogQuotaDefaultRetentionPolicy", "producer_exception", "producer_exception"),
        ("backlogQuotaDefaultLimitBytes", "0", 0),
    ],
)
def test_texts_become_values(name: str, text: str, value: object) -> None:
    """As a policy file has them, beside what is set already."""
    changed = put_value(HELD, name, text)
    assert changed == {"broker": {**HELD["broker"], name: value}}
    check_entry("broker", changed["broker"])


@each(
    ("name", "text", "status", "reason"),
    [
        ("nosuch", "5", 412, "Can't update non-dynamic configuration"),
        ("dispatchThrottlingRateInMsg", "0", 400, "dispatchThrottlingRateInMsg: is 0, which is ambiguous"),
        ("dispatchThrottlingRateInMsg", "abc", 400, "is the text 'abc'"),
        ("dispatchThrottlingRateInMsg", "1.5", 400, "is the text '1.5'"),
        ("dispatchThrottlingRateInMsg", "true", 400, "is true"),
        ("dispatchThrottlingRateInMsg", "9" * 19, 400, "64 bits"),
        ("dispatchThrottlingRateInMsg", "9" * 5_000, 400, "is the text"),
        ("preciseBacklogSize", "1", 400, "preciseBacklogSize: is 1"),
        ("backlogQuotaDefaultRetentionPolicy", "drop", 400, "expected one of"),
    ],
)
def test_nonsense_is_refused(name: str, text: str, status: int, reason: str) -> None:
    """Where Pulsar takes any text for a number."""
    found, said = refusal(put_value, {}, name, text)
    assert found == status and reason in said


def test_a_removed_setting_has_its_default() -> None:
    """Repeatable; with the last one the entry goes."""
    left = delete_value(HELD, "preciseBacklogSize")
    assert left == {"broker": {"dispatchThrottlingRateInMsg": 5}}
    assert delete_value({"broker": left["broker"]}, "dispatchThrottlingRateInMsg") == {"broker": None}
    assert delete_value(HELD, "preciseDispatcherFlowControl") == {}
    refusal(delete_value, HELD, "nosuch")


def test_values_are_texts() -> None:
    """Only what is set, as Pulsar shows it; names are all there are."""
    assert values(HELD) == {"dispatchThrottlingRateInMsg": "5", "preciseBacklogSize": "true"}
    assert values({}) == {}
    assert set(values(HELD)) <= set(NAMES)
