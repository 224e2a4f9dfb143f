"""Rewriting broker addresses in responses, so that clients stay on the proxy (docs/protocol_notes.md 3.3).

Only the addresses are replaced: all other bytes are copied as they came, so records and tagged fields that
we do not know survive.
"""

from collections.abc import Callable, Iterable
from typing import Final

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import Reader, ends_without_tags, spliced, told
from enforcer.wire.kafka.frames import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    BadFrame,
    Reason,
    is_flexible,
    tagged_fields,
)

AddressMap = Callable[[int, str, int], tuple[str, int]]
"""(node id, host, port) of a broker -> (host, port) that clients shall use for it.

It is called for every address in a response, so it is also how the caller learns which brokers exist.
"""

_NODE_ENDPOINTS_TAG: Final = 0
_TAGGED_FROM: Final = {PRODUCE: 10, FETCH: 16}
_SHARED_FROM: Final = {SHARE_FETCH: 1, SHARE_ACKNOWLEDGE: 1}
ENDPOINTS_FROM: Final = _TAGGED_FROM | _SHARED_FROM
"""First version that may end in addresses of new leaders; earlier ones hold none."""
REWRITTEN_KEYS: Final = frozenset({*ENDPOINTS_FROM, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})

_PLACE: Final = "at:Host Host:text Port end:Port"
_BROKERS: Final = Reader(METADATA, "response.Brokers", f"Brokers(NodeId {_PLACE}) end:Brokers")
_BROKERS_AT: Final = told(METADATA, "at:Brokers")
_COORDINATORS: Final = told(FIND_COORDINATOR, f"NodeId {_PLACE} Coordinators(NodeId {_PLACE})", rows=3)
_CLUSTER: Final = told(DESCRIBE_CLUSTER, f"Brokers(BrokerId {_PLACE})")
_TAGS_AT: Final = {PRODUCE: told(PRODUCE, "end:ThrottleTimeMs"), FETCH: told(FETCH, "end:Responses")}
"""Where the tagged section at the end begins, behind all records."""
_ENDPOINTS: Final = {
    key: Reader(key, "response.NodeEndpoints", f"NodeEndpoints(NodeId {_PLACE}) end:NodeEndpoints")
    for key in _TAGGED_FROM
}
_NEW_LEADERS: Final = {key: told(key, f"NodeEndpoints(NodeId {_PLACE})") for key in _SHARED_FROM}


class Rewriter:
    """Replaces every broker address in responses, for all connections of a proxy.

    Covers Metadata 0-13, FindCoordinator 0-6 (node -1 means none and stays), DescribeCluster 0-2 (brokers,
    or controllers) and the endpoints of new leaders in Produce 10-13, Fetch 16-18, ShareFetch and
    ShareAcknowledge 1-2; other APIs' responses come back as they are.

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
        """The response with our addresses.

        Raises:
            BadFrame: the response ends too early or a length in it is impossible.
        """
        if api_key == METADATA:
            return self._metadata(version, response)
        since = ENDPOINTS_FROM.get(api_key)
        if since is not None and (version < since or not may_hold_endpoints(api_key, response)):
            return response
        if api_key in _TAGGED_FROM:
            return self._endpoints(api_key, version, response)
        if api_key not in REWRITTEN_KEYS:
            return response
        if api_key == FIND_COORDINATOR:
            *alone, several = _COORDINATORS(response, version)
            places = [tuple(alone), *several]
        else:
            places = _NEW_LEADERS.get(api_key, _CLUSTER)(response, version)
        return self._rewritten(response, places, is_flexible(api_key, version))

    def _metadata(self, version: int, response: bytes) -> bytes:
        start = _BROKERS_AT(response, version)
        layout = (is_flexible(METADATA, version), version >= 1)
        came, left = self._lists.get(layout, (b"", b""))
        if came and self._changes_then == self._changes() and response.startswith(came, start):
            return b"".join((response[:start], left, response[start + len(came) :]))
        brokers, end = _BROKERS(response, version, start)
        rewritten = self._rewritten(response, brokers, layout[0])
        if self._changes_then != self._changes():
            self._lists.clear()
            self._changes_then = self._changes()
        self._lists[layout] = response[start:end], rewritten[start : len(rewritten) - (len(response) - end)]
        return rewritten

    def _endpoints(self, api_key: int, version: int, response: bytes) -> bytes:
        """Those of new leaders in the tagged section at the end."""
        spans = []
        for tag, start, of, end in tagged_fields(response, _TAGS_AT[api_key](response, version)):
            if tag == _NODE_ENDPOINTS_TAG:
                content = response[of:end]
                nodes, stop = _ENDPOINTS[api_key](content, version, 0)
                if stop != len(content):
                    raise BadFrame(Reason.BAD_VALUE)
                content = self._rewritten(content, nodes, True)
                spans.append((start, end, frames.uvarint(len(content)) + content))
        return spliced(response, spans)

    def _rewritten(
        self, data: bytes, places: Iterable[tuple[int, int, str, int, int]], flexible: bool
    ) -> bytes:
        """Ours where the addresses are; node -1 and an empty host mean that there is none, and stay."""
        spans = []
        # There may be thousands, of a few brokers.
        known: dict[tuple[int, str, int], bytes] = {}
        for node_id, start, host, port, end in places:
            if node_id < 0 or not host:
                continue
            if (node_id, host, port) not in known:
                new_host, new_port = self._address_of(node_id, host, port)
                known[node_id, host, port] = frames.string(new_host, flexible) + frames.int32(new_port)
            spans.append((start, end, known[node_id, host, port]))
        return spliced(data, spans)


def may_hold_endpoints(api_key: int, response: bytes | bytearray) -> bool:
    """Whether a response of ENDPOINTS_FROM may end in addresses of new leaders, from its last bytes.

    Never False when there is one. In those of share groups they are a list before the tagged section, both
    empty nearly always. In Produce and Fetch they are a tag. A Fetch response without it ends in the three
    empty tagged sections of the last partition, its topic and the body. With it, these bytes are the end of
    a port, an absent rack and an empty section, so a port divisible by 256 looks alike: then its two zero
    bytes before decide.
    """
    if api_key in _SHARED_FROM:
        return response[-2:] != b"\1\0"
    if api_key == PRODUCE:
        return not ends_without_tags(response)
    return response[-3:] != b"\0\0\0" or response[-6:-4] == b"\0\0"
