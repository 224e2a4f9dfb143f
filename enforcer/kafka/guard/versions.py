"""Which versions of which APIs clients are offered: ApiVersions, and requests that end a connection.

Source: docs/protocol_notes.md 3.1.
"""

from functools import lru_cache
from typing import Final

from enforcer.kafka.guard.apis import HIDDEN, READABLE
from enforcer.wire.kafka import fields
from enforcer.wire.kafka.codec import Reader, answer
from enforcer.wire.kafka.frames import (
    API_VERSIONS,
    DELETE_TOPICS,
    FLEXIBLE_FROM,
    METADATA,
    RequestHeader,
    is_flexible,
    response_body_offset,
)
from enforcer.wire.kafka.messages import BY_ID_FROM

# An API that is not in READABLE passes with the broker's own range. Produce keeps minimum 0 there: older
# librdkafka looks for it (KAFKA-18659). SaslHandshake 0 would be followed by raw tokens without headers.
# The low ends of the admin APIs are those of a 4.1 broker.
_ANY: Final = (0, (1 << 15) - 1)
_DELETED_BY_ID_FROM: Final = 6
_OFFERED: Final = Reader(
    API_VERSIONS, "response", "ApiKeys(ApiKey MinVersion MaxVersion end:MaxVersion end) end:ApiKeys"
)


def unsupported(header: RequestHeader) -> bool:
    """Whether the proxy must close the connection, as a broker does on a version that it does not know.

    ApiVersions is never unsupported: a too-new one gets an answer, see `api_versions_refusal`.
    """
    key = header.api_key
    if key == API_VERSIONS:
        return False
    if key not in FLEXIBLE_FROM or key in HIDDEN:
        return True
    lowest, highest = READABLE.get(key, _ANY)
    return not lowest <= header.api_version <= highest


def api_versions_refusal(header: RequestHeader) -> bytes | None:
    """The answer to an ApiVersions request that is newer than we read; None if it may go to the broker.

    Error 35 in the form of version 0 with the range of ApiVersions itself; the client then asks again.
    """
    lowest, highest = READABLE[API_VERSIONS]
    if lowest <= header.api_version <= highest:
        return None
    said = {"ApiKey": API_VERSIONS, "MinVersion": lowest, "MaxVersion": highest}
    values = {"ErrorCode": fields.UNSUPPORTED_VERSION, "ApiKeys": [said]}
    return answer(header._replace(api_version=0), values)


def limit_api_versions(response: bytes, version: int) -> bytes:
    """A broker's ApiVersions response reduced to what the proxy understands.

    Throttle time and the tagged section (features) are copied byte for byte. An error 35 comes in the form
    of version 0 whatever was asked, with the correlation id of the request.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    start = response_body_offset(API_VERSIONS, version, response)
    return response[:start] + _limited(response[start:], version)


# A broker says the same for as long as it runs, to every client that comes: read it once per version.
@lru_cache(maxsize=64)
def _limited(body: bytes, version: int) -> bytes:
    refused = int.from_bytes(body[:2], "big") == fields.UNSUPPORTED_VERSION
    version = 0 if refused else version
    keys, list_end = _OFFERED(body, version, 0)
    said = {key: (low, high, body[tags:end]) for key, low, high, tags, end in keys}
    knows_ids = said.get(METADATA, (0, 0, b""))[1] >= BY_ID_FROM
    rows: list[bytes] = []
    for key, (low, high, row_tags) in said.items():
        if key not in FLEXIBLE_FROM or key in HIDDEN:
            continue
        lowest, highest = READABLE.get(key, _ANY)
        if key == DELETE_TOPICS and not knows_ids:
            # Kafka 2.8 and 3.0 delete by id what they cannot be asked for by id.
            highest = _DELETED_BY_ID_FROM - 1
        low, high = max(low, lowest), min(high, highest)
        if low <= high:
            rows.append(fields.int16(key) + fields.int16(low) + fields.int16(high) + row_tags)
    count = fields.array_length(len(rows), is_flexible(API_VERSIONS, version))
    return b"".join((body[:2], count, *rows, body[list_end:]))
