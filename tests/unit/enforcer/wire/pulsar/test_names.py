"""Names of topics."""

import pytest
from each_kit import each

from enforcer.wire.pulsar.names import BadName, read_topic


@each(
    ("name", "whole", "partition"),
    [
        ("x", "persistent://public/default/x", -1),
        ("x-partition-3", "persistent://public/default/x", 3),
        ("a/b/x", "persistent://a/b/x", -1),
        ("persistent://a/b/x", "persistent://a/b/x", -1),
        ("non-persistent://a/b/x-partition-0", "non-persistent://a/b/x", 0),
        # The old form, with a cluster.
        ("persistent://a/use/b/x", "persistent://a/use/b/x", -1),
        # Other ways to write them, which brokers take.
        ("PERSISTENT://a/b/x", "persistent://a/b/x", -1),
        ("Non-Persistent://a/b/x", "non-persistent://a/b/x", -1),
        ("per\u017f\u0131stent://a/b/x", "persistent://a/b/x", -1),
        ("pers\u0130stent://a/b/x", "persistent://a/b/x", -1),
        ("/x", "persistent://public/default/x", -1),
        ("//x-partition-3", "persistent://public/default/x", 3),
        ("x/", "persistent://public/default/x", -1),
        # No numbers of partitions.
        ("x-partition-03", "persistent://public/default/x-partition-03", -1),
        ("x-partition-", "persistent://public/default/x-partition-", -1),
        ("x-partition-12345678901", "persistent://public/default/x-partition-12345678901", -1),
        ("-partition-1", "persistent://public/default/-partition-1", -1),
        ("x-partition-1-partition-2", "persistent://public/default/x-partition-1", 2),
    ],
)
def test_what_names_mean(name: str, whole: str, partition: int) -> None:
    """The full name and the partition; the whole name reads as itself."""
    topic = read_topic(name)
    assert (topic.whole, topic.partition) == (whole, partition)
    assert read_topic(topic.name) == topic
    assert topic.persistent is whole.startswith("persistent")


@each(
    "name",
    [
        "", "a/x", "a/b/c/x", "persistent://a/x", "topic://a/b/x", "persistent://a//x", "/", "x//y", "/a/b/x",
        "a//b/x", "a/b/x/", "persistent:///a/b/x", "persistent://a//b/x", "x://y",
    ],
)  # fmt: skip
def test_what_no_topic_is_called(name: str) -> None:
    """Brokers refuse these, too."""
    with pytest.raises(BadName):
        read_topic(name)
