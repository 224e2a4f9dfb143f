"""Topic names and the namespaces in them."""

import pytest

from streaming.contract.errors import WeirError
from streaming.contract.namespaces import Namespaces


@pytest.mark.parametrize(
    ("pattern", "topic", "namespace"),
    [
        ("tenant.namespace.topic", "a.b.c", "a/b"),
        ("tenant.namespace.topic", "a.b.c.d", "a/b"),
        ("tenant.namespace.topic", "a.b", None),
        ("tenant.namespace.topic", "a..c", None),
        ("tenant.namespace.topic", "a.b.", None),
        ("tenant.namespace.topic", "a/x.b.c", None),
        ("tenant-namespace_topic", "a.b-c_d", "a.b/c"),
        ("kafka.tenant.namespace.topic.v1", "kafka.a.b.c.v1", "a/b"),
        ("kafka.tenant.namespace.topic.v1", "kafka.a.b.c.v2", None),
        ("tenant.namespace.topic", "__consumer_offsets", None),
    ],
)
def test_patterns(pattern: str, topic: str, namespace: str | None) -> None:
    """What is between the words, and around them, must be there."""
    assert Namespaces(pattern).of(topic) == namespace


@pytest.mark.parametrize(
    "pattern",
    [
        "", "topic", "tenant.topic", "namespace.tenant.topic", "tenantnamespace.topic",
        "tenant.namespace.topic.topic",
    ],
)  # fmt: skip
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    """At the start, with an example."""
    with pytest.raises(WeirError, match=r"tenant\.namespace\.topic"):
        Namespaces(pattern)


@pytest.mark.parametrize(
    ("pattern", "topic", "full"),
    [
        ("tenant.namespace.topic", "a.b.c.d", "persistent://a/b/c.d"),
        ("tenant.namespace.topic", "a.b", "persistent://public/default/a.b"),
        ("kafka-tenant-namespace_topic", "kafka-a-b_c", "persistent://a/b/c"),
        ("persistent://tenant/namespace/topic", "non-persistent://a/b/c", "non-persistent://a/b/c"),
    ],
)
def test_full_names(pattern: str, topic: str, full: str) -> None:
    """Every topic has one, so that policies may speak of it."""
    assert Namespaces(pattern).full_name(topic) == full
