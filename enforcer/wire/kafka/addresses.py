"""Rewriting broker addresses in responses, so that clients stay on the proxy (docs/protocol_notes.md 3.3).

Only the addresses are replaced: all other bytes are copied as they came, so records and tagged fields that
we do not know survive.
"""

from collections.abc import Callable
from typing import Final

from enforcer.wire.kafka import fields
from enforcer.wire.kafka.fields import Cursor
from enforcer.wire.kafka.frames import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    BadFrame,
    Reason,
    is_flexible,
    response_body_offset,
)
from enforcer.wire.kafka.throttle import ends_without_tags, skip_produce_partitions

AddressMap = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) of a broker -> (host, port) that clients shall use for it.

It is called for every address in a response, so it is also how the caller learns which brokers exist.
"""

_NODE_ENDPOINTS_TAG: Final = 0
_NONE_ABORTED: Final = (b"\0", b"\1")
_ENDPOINTS_FROM: Final = {PRODUCE: 10, FETCH: 16}
REWRITTEN_KEYS: Final = frozenset({PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})


class _Splice:
    """A message being copied with some of its spans replaced."""

    __slots__ = ("_copied", "_data", "_parts")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._copied = 0
        self._parts: list[bytes] = []

    def replace(self, start: int, end: int, value: bytes) -> None:
        """Puts `value` in place of the bytes from start to end; spans come in ascending order."""
        self._parts += (self._data[self._copied : start], value)
        self._copied = end

    def result(self) -> bytes:
        """The message so far and the rest of it as it was."""
        if not self._parts:
            return self._data
        return b"".join((*self._parts, self._data[self._copied :]))


def rewrite_addresses(api_key: int, version: int, response: bytes, address_of: AddressMap) -> bytes:
    """The response with every broker address replaced; other APIs' responses come back as they are.

    Covers Metadata 0-13, FindCoordinator 0-6 (node -1 means none and stays), DescribeCluster 0-2 (brokers,
    or controllers) and the endpoints of new leaders in Produce 10-13 and Fetch 16-18.

    Raises:
        BadFrame: the response ends too early or a length in it is impossible.
    """
    if api_key in _ENDPOINTS_FROM:
        if version < _ENDPOINTS_FROM[api_key] or not may_hold_endpoints(api_key, response):
            return response
        return _rewrite_endpoints(api_key, version, response, address_of)
    if api_key not in REWRITTEN_KEYS:
        return response
    flexible = is_flexible(api_key, version)
    cursor = Cursor(response, response_body_offset(api_key, version, response), flexible)
    splice = _Splice(response)
    if api_key == METADATA:
        cursor.offset = _broker_list_offset(version, response)
        _rewrite_brokers(cursor, splice, address_of, has_rack=version >= 1, has_fenced=False)
    elif api_key == FIND_COORDINATOR:
        _rewrite_coordinators(version, cursor, splice, address_of)
    else:
        cursor.skip(4 + 2)  # throttle time, error code
        cursor.skip_string()
        cursor.skip(1 if version >= 1 else 0)  # endpoint type
        cursor.skip_string()
        cursor.skip(4)  # controller id
        _rewrite_brokers(cursor, splice, address_of, has_rack=True, has_fenced=version >= 2)
    return splice.result()


class Rewriter:
    """`rewrite_addresses` for all connections of a proxy.

    It remembers the newest broker list of Metadata responses, with its replacement: a cluster says the same
    list to every client all day, and reading it is most of the work on a small response.

    Args:
        address_of: where clients go instead of a broker.
        changes: counts up with every answer of `address_of` that is not as before.
    """

    def __init__(self, address_of: AddressMap, changes: Callable[[], int]) -> None:
        self._address_of = address_of
        self._changes = changes
        self._changes_then = -1
        # By layout, of which there are three: the list as it came, and as it left.
        self._lists: dict[tuple[bool, bool], tuple[bytes, bytes]] = {}

    def __call__(self, api_key: int, version: int, response: bytes) -> bytes:
        """See `rewrite_addresses`."""
        if api_key != METADATA:
            return rewrite_addresses(api_key, version, response, self._address_of)
        start = _broker_list_offset(version, response)
        layout = (is_flexible(METADATA, version), version >= 1)
        came, left = self._lists.get(layout, (b"", b""))
        if came and self._changes_then == self._changes() and response.startswith(came, start):
            return b"".join((response[:start], left, response[start + len(came) :]))
        cursor, splice = Cursor(response, start, layout[0]), _Splice(response)
        _rewrite_brokers(cursor, splice, self._address_of, has_rack=layout[1], has_fenced=False)
        rewritten, rest = splice.result(), len(response) - cursor.offset
        if self._changes_then != self._changes():
            self._lists.clear()
            self._changes_then = self._changes()
        self._lists[layout] = (response[start : cursor.offset], rewritten[start : len(rewritten) - rest])
        return rewritten


def _broker_list_offset(version: int, response: bytes) -> int:
    """Where the list of brokers begins in a Metadata response: first, but for the throttle time from 3 on."""
    return response_body_offset(METADATA, version, response) + (4 if version >= 3 else 0)


def _rewrite_address(cursor: Cursor, splice: _Splice, node_id: int, address_of: AddressMap) -> None:
    start = cursor.offset
    host = cursor.string()
    port = cursor.int32()
    if node_id < 0 or not host:
        return
    new_host, new_port = address_of(node_id, host, port)
    value = fields.string(new_host, cursor.flexible) + fields.int32(new_port)
    splice.replace(start, cursor.offset, value)


def _rewritten_address(address: bytes, address_of: AddressMap) -> bytes:
    """Node id, host and port as in a flexible message, with our address."""
    cursor, splice = Cursor(address, 0, True), _Splice(address)
    _rewrite_address(cursor, splice, cursor.int32(), address_of)
    return splice.result()


def _rewrite_brokers(
    cursor: Cursor, splice: _Splice, address_of: AddressMap, *, has_rack: bool, has_fenced: bool
) -> None:
    for _ in cursor.elements():
        _rewrite_address(cursor, splice, cursor.int32(), address_of)
        if has_rack:
            cursor.skip_string()
        cursor.skip(1 if has_fenced else 0)
        cursor.skip_tags()


def _rewrite_coordinators(version: int, cursor: Cursor, splice: _Splice, address_of: AddressMap) -> None:
    cursor.skip(4 if version >= 1 else 0)  # throttle time
    if version < 4:
        cursor.skip(2)
        if version >= 1:
            cursor.skip_string()
        _rewrite_address(cursor, splice, cursor.int32(), address_of)
        return
    # There may be thousands, of a few brokers: the same bytes are replaced as they were before.
    known: dict[bytes, bytes] = {}
    data = cursor.data
    for _ in cursor.elements(rows=3):
        cursor.skip_string()  # the key asked for
        start = cursor.offset
        cursor.offset += 4
        cursor.skip_string()
        cursor.skip(4)
        address = bytes(data[start : cursor.offset])
        if address not in known:
            known[address] = _rewritten_address(address, address_of)
        if known[address] != address:
            splice.replace(start, cursor.offset, known[address])
        cursor.skip(2)
        cursor.skip_string()
        cursor.skip_tags()


def may_hold_endpoints(api_key: int, response: bytes | bytearray) -> bool:
    """Whether a Produce v10+ or Fetch v16+ response may end in the tag of new leaders, from its last bytes.

    Never False when there is one. A Fetch response without it ends in the three empty tagged sections of the
    last partition, its topic and the body. With it, these bytes are the end of a port, an absent rack
    and an empty section, so a port divisible by 256 looks alike: then its two zero bytes before decide.
    """
    if api_key == PRODUCE:
        return not ends_without_tags(response)
    return response[-3:] != b"\0\0\0" or response[-6:-4] == b"\0\0"


def _rewrite_endpoints(api_key: int, version: int, response: bytes, address_of: AddressMap) -> bytes:
    cursor = Cursor(response, response_body_offset(api_key, version, response), True)
    if api_key == PRODUCE:
        skip_produce_partitions(cursor, version)
        cursor.skip(4)
    else:
        _skip_fetch_partitions(cursor)
    splice = _Splice(response)
    for _ in range(cursor.uvarint()):
        tag = cursor.uvarint()
        start = cursor.offset
        size = cursor.uvarint()
        content_start = cursor.offset
        cursor.skip(size)
        if tag == _NODE_ENDPOINTS_TAG:
            content = _rewrite_endpoint_list(response[content_start : cursor.offset], address_of)
            splice.replace(start, cursor.offset, fields.uvarint(len(content)) + content)
    return splice.result()


def _rewrite_endpoint_list(content: bytes, address_of: AddressMap) -> bytes:
    cursor = Cursor(content, 0, True)
    splice = _Splice(content)
    _rewrite_brokers(cursor, splice, address_of, has_rack=True, has_fenced=False)
    if cursor.offset != len(content):
        raise BadFrame(Reason.BAD_VALUE)
    return splice.result()


def _skip_fetch_partitions(cursor: Cursor) -> None:
    """Moves a cursor at the body of a Fetch response v16+ over all records, in steps of a partition."""
    data = cursor.data
    cursor.skip(4 + 2 + 4)  # throttle time, error code, session id
    for _ in cursor.elements():
        cursor.skip(len(fields.NO_ID))
        for _ in cursor.elements(rows=3):
            # Index, error, high watermark, last stable and log start offset.
            cursor.skip(4 + 2 + 8 + 8 + 8)
            if data[cursor.offset : cursor.offset + 1] in _NONE_ABORTED:
                cursor.offset += 1 + 4  # preferred read replica
            else:
                cursor.skip_rows(before=8 + 8)  # aborted transactions: producer id, first offset
                cursor.skip(4)
            cursor.skip_bytes()
            cursor.skip_tags()
        cursor.skip_tags()
