"""Responses to the admin requests: read, merged, made up, explained."""

import uuid
from contextlib import suppress
from typing import Any

import pytest
from admin_kit import CASES, delete, naming
from each_kit import each
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.topics import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse
from kafka_kit import CORRELATION_ID, build, decode, request, response, with_tag

from enforcer.wire.kafka.frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, BadFrame
from enforcer.wire.kafka.mutations import (
    THROTTLING_QUOTA_EXCEEDED,
    MutationRequest,
    decode_answer,
    decode_request,
    explain_throttle,
    merge,
    refuse_all,
)

MESSAGE = "user=alice is over its quota of 5 partition mutations per second"
TOPIC_ID = uuid.uuid5(uuid.NAMESPACE_DNS, "done")
NOBODY = uuid.UUID(int=0)
RESPONSES: dict[int, Any] = {
    CREATE_TOPICS: CreateTopicsResponse,
    DELETE_TOPICS: DeleteTopicsResponse,
    CREATE_PARTITIONS: CreatePartitionsResponse,
}
ROWS = {
    CREATE_TOPICS: "topics", DELETE_TOPICS: "responses",
    CREATE_PARTITIONS: "results",
}  # fmt: skip


def read_request(api: int, version: int, *names: str) -> MutationRequest:
    """A request for these topics as the proxy reads it."""
    return decode_request(*request(naming(api, version, *names)))


def row(api: int, version: int, name: str, error: int = 0, message: str | None = None) -> Any:
    """One topic as the broker answers it: created with 3 partitions and a configuration, unless in error."""
    config = {"name": "a", "value": None, "read_only": False, "config_source": 5, "is_sensitive": False}
    values = {"name": name, "error_code": error, "topic_id": NOBODY if error else TOPIC_ID}
    if api != DELETE_TOPICS or version >= 5:
        values["error_message"] = message
    values |= {"num_partitions": -1 if error else 3, "replication_factor": -1 if error else 1}
    values |= {"configs": [] if error else [config]}
    kind = RESPONSES[api].fields[ROWS[api]].data_class
    return build(kind, version, **{field: one for field, one in values.items() if field in kind.fields})


def answer(api: int, version: int, rows: list[Any], throttle_ms: int = 0) -> bytes:
    """A response with these topics."""
    return response(build(RESPONSES[api], version, throttle_time_ms=throttle_ms, **{ROWS[api]: rows}))


@each(("api", "version"), CASES)
def test_answer_is_read(api: int, version: int) -> None:
    """Errors, ids, partition counts and which messages are null."""
    frame = answer(api, version, [row(api, version, "done"), row(api, version, "bad", 3, "unknown")], 50)
    read = decode_answer(api, version, frame)
    assert [(item.name, item.error_code) for item in read] == [("done", 0), ("bad", 3)]
    has_id = (api, version) in ((CREATE_TOPICS, 7), (DELETE_TOPICS, 6))
    assert [item.topic_id for item in read] == [TOPIC_ID.bytes if has_id else NOBODY.bytes, NOBODY.bytes]
    if api == CREATE_TOPICS and version >= 5:
        assert [item.num_partitions for item in read] == [3, -1]


@each(("api", "version"), CASES)
def test_rejected_topics_are_added(api: int, version: int) -> None:
    """The merged response equals one that a broker would have encoded, with the larger throttle time."""
    read = read_request(api, version, "no1", "done", "no2", "bad")
    broker_rows = [row(api, version, "done"), row(api, version, "bad", 3, "unknown")]
    merged = merge(answer(api, version, broker_rows, 50), read, {0, 2}, MESSAGE, 4000)
    rejected = [row(api, version, name, THROTTLING_QUOTA_EXCEEDED, MESSAGE) for name in ("no1", "no2")]
    assert merged == answer(api, version, rejected + broker_rows, 4000)
    less = merge(answer(api, version, broker_rows, 5000), read, (), MESSAGE, 4000)
    assert less == answer(api, version, broker_rows, 5000)


@each(("api", "version"), CASES)
def test_whole_refusal(api: int, version: int) -> None:
    """An answer made without the broker repeats the correlation id and rejects every topic."""
    read = read_request(api, version, "a", "b")
    refused = refuse_all(read, 3990, MESSAGE)
    rows = [row(api, version, name, THROTTLING_QUOTA_EXCEEDED, MESSAGE) for name in ("a", "b")]
    assert refused == answer(api, version, rows, 3990)
    assert decode(RESPONSES[api], version, refused).header.correlation_id == CORRELATION_ID


def test_rejected_deletion_by_id_has_no_name() -> None:
    """A topic named by id is rejected by id, with a null name."""
    read = decode_request(*request(delete(6, TOPIC_ID.bytes, "b")))
    message = decode(DeleteTopicsResponse, 6, refuse_all(read, 1, MESSAGE))
    assert [(one.name, one.topic_id) for one in message.responses] == [(None, TOPIC_ID), ("b", None)]


def test_other_error_codes_can_be_given() -> None:
    """The same answer serves other refusals, such as a request that timed out."""
    read = read_request(CREATE_TOPICS, 7, "a")
    message = decode(CreateTopicsResponse, 7, refuse_all(read, 0, "late", error_code=7))
    assert (message.topics[0].error_code, message.throttle_time_ms) == (7, 0)


def test_merging_keeps_unknown_tags() -> None:
    """Tagged fields of the broker's topics and of its response survive."""
    api = CREATE_TOPICS
    plain = answer(api, 7, [row(api, 7, "done")])
    end = len(plain) - 1
    tagged = with_tag(with_tag(plain, len(plain) - 1), end - 1)
    read = read_request(api, 7, "done", "no")
    grown = answer(api, 7, [row(api, 7, "no", THROTTLING_QUOTA_EXCEEDED, MESSAGE), row(api, 7, "done")], 9)
    expected = with_tag(with_tag(grown, len(grown) - 1), len(grown) - 2)
    assert merge(tagged, read, {1}, MESSAGE, 9) == expected


@each(("api", "version"), CASES)
def test_throttle_is_explained_to_old_clients(api: int, version: int) -> None:
    """Topics that were done get the message, in permissive versions that have the field; others stay."""
    rows = [row(api, version, "done"), row(api, version, "bad", 3, "unknown"), row(api, version, "null", 3)]
    frame = answer(api, version, rows)
    strict_from = {CREATE_TOPICS: 6, CREATE_PARTITIONS: 3}.get(api, 0)
    if version < strict_from:
        rows[0].error_message = MESSAGE
    assert explain_throttle(api, version, frame, MESSAGE) == answer(api, version, rows)


def test_given_message_is_not_replaced() -> None:
    """What the broker says about a topic that was done stays."""
    api = CREATE_PARTITIONS
    frame = answer(api, 2, [row(api, 2, "done", 0, "broker's own")])
    assert explain_throttle(api, 2, frame, MESSAGE) == frame


def test_answer_to_nothing_can_be_added_to() -> None:
    """A broker's empty list takes the rejected topics."""
    api = DELETE_TOPICS
    read = read_request(api, 6, "a")
    assert merge(answer(api, 6, []), read, {0}, MESSAGE, 5) == refuse_all(read, 5, MESSAGE)


@each(("api", "version"), CASES)
def test_truncated_answers_are_refused(api: int, version: int) -> None:
    """Every cut is a bad frame."""
    frame = answer(api, version, [row(api, version, "done"), row(api, version, "bad", 3, "unknown")])
    for end in range(len(frame)):
        with pytest.raises(BadFrame):
            decode_answer(api, version, frame[:end])


@given(st.sampled_from(CASES), st.binary(max_size=80))
def test_answers_survive_garbage(case: tuple[int, int], frame: bytes) -> None:
    """Garbage parses or raises BadFrame."""
    with suppress(BadFrame):
        merge(frame, read_request(*case, "a"), {0}, MESSAGE, 5)
    with suppress(BadFrame):
        explain_throttle(*case, frame, MESSAGE)
