"""Weir's topics as `weir doctor` finds them."""

import pytest
from doctor_kit import brokers, patient_of, told

from streaming.contract.topics import Topics
from streaming.kafka_io.weir_topics import Fault, TopicFault, TopicsSeen
from weir.doctor.checks.topics import check_replicas, check_topics
from weir.doctor.patient import metadata

IDS = {"weir.usage": "1"}


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.MISSING, "error"), (Fault.TIMESTAMPS, "error"), (Fault.CLEANUP, "error"),
        (Fault.PARTITIONS, "error"), (Fault.FORGETS, "error"), (Fault.KEEPS_LESS, "warning"),
        (Fault.NOT_OURS, "warning"), (Fault.UNREADABLE, "warning"),
    ],
)  # fmt: skip
def test_each_fault_of_a_topic_has_its_command(
    fault: Fault, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stops a part, or keeps it from working, is an error."""
    seen = TopicFault(topic="weir.usage", fault=fault, what="is wrong", mend="kafka-configs it")
    monkeypatch.setattr(
        "weir.doctor.checks.topics.look", lambda *_: TopicsSeen(faults=(seen,), ids=IDS, partitions={})
    )
    (found,) = check_topics(patient_of())
    assert (found.status, found.what, found.mend) == (status, "is wrong", "kafka-configs it")


def test_topics_that_are_as_they_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line."""
    found = TopicsSeen(faults=(), ids=IDS, partitions={})
    monkeypatch.setattr("weir.doctor.checks.topics.look", lambda *_: found)
    assert told(check_topics(patient_of())) == [("ok", "the 1 topics of weir. are as they must be")]


@pytest.mark.parametrize(
    ("count", "replicas", "leader", "expected"),
    [
        (1, 1, 1, ["ok"]), (3, 3, 1, ["ok"]), (5, 3, 1, ["ok"]), (2, 1, 1, ["warning"]),
        (3, 2, 1, ["warning"]), (3, 3, -1, ["error"]), (3, 1, -1, ["error", "warning"]),
    ],
)  # fmt: skip
def test_leaders_and_copies(count: int, replicas: int, leader: int, expected: list[str]) -> None:
    """As many as there can be, up to three."""
    found = told(check_replicas(patient_of({metadata: brokers(count, replicas, leader)})))
    assert [status for status, _ in found] == expected


def test_no_topic_can_be_seen() -> None:
    """Without rights, or before they are made."""
    unseen = patient_of({metadata: brokers(topics=Topics("other."))})
    assert told(check_replicas(unseen)) == [("warning", "no topic of Weir's can be seen")]
