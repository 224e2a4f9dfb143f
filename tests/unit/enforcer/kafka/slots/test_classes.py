"""Classes of requests."""

from enforcer.kafka.slots.counted_answers import DELAYED_KEYS, PRODUCE_CLASS, class_of
from enforcer.wire.kafka.frames import FLEXIBLE_FROM
from enforcer.wire.kafka.mutations import MUTATION_KEYS
from streaming.policy.concurrency_schema import EXEMPT, RequestClass


def test_classes_are_those_that_a_policy_may_name() -> None:
    """And produce, which is none of them: it is never exempt."""
    found = {class_of(key) for key in FLEXIBLE_FROM}
    assert found == {each.value for each in RequestClass} | {PRODUCE_CLASS}


def test_mutations_are_admin_requests_and_do_not_pass_by_themselves() -> None:
    """They are refused with an error that they have."""
    assert {class_of(key) for key in MUTATION_KEYS} == {"admin"}
    assert "admin" not in EXEMPT


def test_what_waits_on_purpose_passes_by_itself() -> None:
    """Else idle clients would use up a limit."""
    assert {class_of(key) for key in DELAYED_KEYS} <= set(EXEMPT)
