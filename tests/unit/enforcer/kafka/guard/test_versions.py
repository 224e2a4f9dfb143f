"""Version ranges: what clients are offered, and what ends a connection."""

from typing import Any

import pytest
from each_kit import each
from kafka.protocol.metadata.api_versions import ApiVersionsResponse
from kafka_kit import CLIENT_ID, CORRELATION_ID, build, decode, response, with_tag

from enforcer.kafka.guard.answers import limit_api_versions
from enforcer.kafka.guard.guard import api_versions_refusal
from enforcer.kafka.guard.protected import unsupported
from enforcer.wire.kafka.frames import RequestHeader

BROKER_SAYS = {
    0: (0, 14), 1: (4, 30), 3: (0, 13), 10: (0, 6), 17: (0, 1), 18: (0, 4), 19: (0, 8), 20: (1, 5),
    22: (0, 6), 36: (0, 2), 37: (0, 3), 60: (0, 2), 68: (0, 1), 76: (0, 0), 78: (1, 1), 79: (0, 3),
    83: (0, 1), 93: (0, 0), -1: (0, 0),
}  # fmt: skip
CLIENT_SEES = {
    0: (0, 13), 1: (4, 18), 3: (0, 13), 10: (0, 6), 17: (1, 1), 18: (0, 4), 19: (2, 7), 20: (1, 5),
    22: (0, 6), 36: (0, 2), 37: (0, 3), 60: (0, 2), 68: (0, 1), 78: (1, 1), 79: (1, 2),
}  # fmt: skip


def header(api_key: int, version: int) -> RequestHeader:
    """A request header of this API and version."""
    return RequestHeader(api_key, version, CORRELATION_ID, CLIENT_ID, 20)


def answered(version: int, ranges: dict[int, tuple[int, int]], **fields: Any) -> bytes:
    """An answer to ApiVersions that offers these."""
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in ranges.items()]
    return response(build(ApiVersionsResponse, version, api_keys=keys, **fields))


@each("version", range(5))
def test_versions_are_intersected(version: int) -> None:
    """Ranges shrink to ours, unknown and hidden APIs vanish, features and throttle time are copied."""
    feature = {"name": "f", "min_version": 1, "max_version": 2}
    fields = {"supported_features": [feature], "finalized_features_epoch": 5, "throttle_time_ms": 3}
    limited = limit_api_versions(answered(version, BROKER_SAYS, **fields), version)
    assert limited == answered(version, CLIENT_SEES, **fields)


def test_range_that_we_do_not_share_with_the_broker_vanishes() -> None:
    """A broker whose versions are all newer than ours does not offer the API at all."""
    limited = limit_api_versions(answered(0, {19: (8, 9)}), 0)
    assert decode(ApiVersionsResponse, 0, limited).api_keys == []


def test_unknown_tags_of_a_key_survive() -> None:
    """A tagged field in an entry is copied with it."""
    frame = with_tag(answered(3, {22: (0, 6)}), 4 + 2 + 1 + 6)
    assert limit_api_versions(frame, 3) == frame


def test_too_new_api_versions_is_answered_in_version_0() -> None:
    """Error 35 with the range of ApiVersions, correlation id kept; a broker's own such answer passes too."""
    answer = api_versions_refusal(header(18, 99))
    assert answer == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")  # what a 4.1.0 broker sends
    assert limit_api_versions(answer, 99) == answer
    assert api_versions_refusal(header(18, 4)) is None


@each(
    ("api_key", "version", "closed"),
    [
        (0, 13, False), (0, 14, True), (1, 19, True), (3, 13, False), (3, 14, True), (3, -1, True),
        (10, 7, True), (17, 0, True), (17, 1, False), (18, 99, False), (19, 1, True), (19, 7, False),
        (19, 8, True), (20, 0, True), (20, 7, True), (36, 3, True), (37, 4, True), (60, 3, True),
        (78, 0, True), (79, 3, True), (83, 1, True), (22, 99, True), (72, 9, False),
        (88, 1, True), (88, 0, False), (89, 0, False), (93, 0, True),
        (-1, 0, True), (1000, 0, True),
    ],
)  # fmt: skip
def test_what_must_be_closed(api_key: int, version: int, closed: bool) -> None:
    """Only versions that we would have to read and cannot, and unknown APIs, end a connection."""
    assert unsupported(header(api_key, version)) is closed


@pytest.mark.parametrize(("metadata", "offered"), [(13, 6), (12, 6), (11, 5), (9, 5)])
def test_nothing_by_id_is_offered_where_ids_cannot_be_looked_up(metadata: int, offered: int) -> None:
    """Kafka 2.8 and 3.0 have DeleteTopics by id, but end a connection that asks for the names of ids."""
    frame = limit_api_versions(answered(3, {20: (1, 6), 3: (0, metadata)}), 3)
    limited = decode(ApiVersionsResponse, 3, frame)
    assert {key.api_key: key.max_version for key in limited.api_keys} == {20: offered, 3: metadata}
