"""Kafka requests over sockets: cheap enough that the client's own work does not hide the proxy's."""

import selectors
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, cast

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import api_versions, metadata
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecordsBuilder

from streaming.contract.errors import WeirError

LIMIT_S: Final = 60.0
"""Of every wait for an answer."""
RECORDS_MAX_BYTES: Final = 16_384
"""Of a batch, as the producers of Kafka fill them by default; a larger record is alone in its batch."""
FETCH_MAX_BYTES: Final = 1_048_576
_LENGTH = struct.Struct(">i")
_CORRELATION_ID: Final = 1
_FETCH_VERSION: Final = 17
_READ_BYTES: Final = 1 << 20


def _framed(message: Any) -> bytes:
    message.with_header(_CORRELATION_ID, "bench")
    payload = bytes(message.encode(header=True))
    return _LENGTH.pack(len(payload)) + payload


def api_versions_request() -> bytes:
    """A framed ApiVersions request."""
    return _framed(api_versions.ApiVersionsRequest(version=0))


def metadata_request(topic: str) -> bytes:
    """A framed Metadata request for one topic."""
    wanted: Any = metadata.MetadataRequest.MetadataRequestTopic(version=9, name=topic)
    return _framed(metadata.MetadataRequest(version=9, topics=[wanted], allow_auto_topic_creation=False))


def produce_request(topic: str, record_bytes: int) -> bytes:
    """A framed Produce request (acks 1) with one batch of records of a size."""
    builder = MemoryRecordsBuilder(2, 0, max(RECORDS_MAX_BYTES, 2 * record_bytes))
    for _ in range(max(1, RECORDS_MAX_BYTES // record_bytes)):
        builder.append(int(time.time() * 1000), None, bytes(record_bytes), [])
    builder.close()
    data: Any = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(version=9, index=0, records=bytes(builder.buffer()))
    topic_data = data(version=9, name=topic, partition_data=[partition])
    return _framed(ProduceRequest(version=9, acks=1, timeout_ms=30_000, topic_data=[topic_data]))


def fetch_request(topic_id: bytes) -> bytes:
    """A framed Fetch request, as new as clients send it, for the first records of a partition."""
    wanted: Any = FetchRequest.FetchTopic
    partition = wanted.FetchPartition(
        version=_FETCH_VERSION, partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1,
        log_start_offset=-1, partition_max_bytes=FETCH_MAX_BYTES,
    )  # fmt: skip
    topic = wanted(version=_FETCH_VERSION, topic_id=uuid.UUID(bytes=topic_id), partitions=[partition])
    return _framed(
        FetchRequest(
            version=_FETCH_VERSION, replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=FETCH_MAX_BYTES,
            isolation_level=0, session_id=0, session_epoch=-1, rack_id="", forgotten_topics_data=[],
            topics=[topic],
        )
    )  # fmt: skip


class Line:
    """One connection that is used for one request at a time.

    Args:
        address: `HOST:PORT`.
        tls: None: in plain text.
        session: of an earlier connection by TLS, which this one is to go on with.
    """

    def __init__(
        self, address: str, tls: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None
    ) -> None:
        self._socket = connect(address, tls, session)
        self._buffer = bytearray(_READ_BYTES)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    @property
    def session(self) -> ssl.SSLSession | None:
        """What a later connection can go on with, once something was read."""
        return self._socket.session if isinstance(self._socket, ssl.SSLSocket) else None

    @property
    def resumed(self) -> bool:
        """Whether it went on with an earlier one."""
        return isinstance(self._socket, ssl.SSLSocket) and bool(self._socket.session_reused)

    def ask(self, request: bytes) -> int:
        """Send a framed request and read its answer; returns the answer's size with its length, bytes."""
        self._socket.sendall(request)
        got = self._receive()
        size = _LENGTH.size + int(_LENGTH.unpack_from(self._buffer)[0])
        while got < size:
            got += self._receive()
        return size

    def round_trips_us(self, request: bytes, count: int) -> list[float]:
        """Ask so many times, one after the other; how long each took."""
        taken = []
        for _ in range(count):
            begun = time.perf_counter_ns()
            self.ask(request)
            taken.append((time.perf_counter_ns() - begun) / 1000)
        return taken

    def _receive(self) -> int:
        # The first bytes hold the length; of a large answer only the size counts.
        count = self._socket.recv_into(self._buffer)
        if not count:
            raise WeirError("the connection was closed")
        return count


def flood(
    address: str, request: bytes, *, connections: int, depth: int, seconds: float,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, float]:  # fmt: skip
    """Keep `depth` requests under way on each connection; the answers to a request must be of one size.

    Returns:
        Requests answered and seconds taken. Each connection sends again when all of its `depth` answers
        are there.

    Raises:
        WeirError: a connection is closed, or nothing comes for LIMIT_S.
    """
    first = Line(address, tls)
    size = first.ask(request)
    first.close()
    lines = [connect(address, tls) for _ in range(connections)]
    found = keep_asking(lines, request, size, depth=depth, seconds=seconds)
    for line in lines:
        line.close()
    return found


def keep_asking(
    lines: Sequence[socket.socket], request: bytes, size: int, *, depth: int, seconds: float
) -> tuple[int, float]:
    """As `flood`, on connections that are there; an answer has `size` bytes with its length."""
    size *= depth
    batch, buffer = request * depth, bytearray(_READ_BYTES)
    rounds = 0
    missing: dict[socket.socket, int] = {}
    with selectors.DefaultSelector() as waiting:
        begun = time.perf_counter()
        for line in lines:
            waiting.register(line, selectors.EVENT_READ)
            missing[line] = size
            line.sendall(batch)
        while missing:
            ready = waiting.select(LIMIT_S)
            if not ready:
                raise WeirError(f"no answer within {LIMIT_S:.0f} s")
            for key, _ in ready:
                line = cast(socket.socket, key.fileobj)
                missing[line] -= _take(line, buffer)
                if missing[line]:
                    continue
                rounds += 1
                if time.perf_counter() - begun < seconds:
                    missing[line] = size
                    line.sendall(batch)
                else:
                    del missing[line]
        taken = time.perf_counter() - begun
    return rounds * depth, taken


def _take(line: socket.socket, buffer: bytearray) -> int:
    """Read what is there; of TLS also what the socket itself no longer tells of."""
    count = line.recv_into(buffer)
    if not count:
        raise WeirError("the connection was closed")
    while isinstance(line, ssl.SSLSocket) and line.pending():
        count += line.recv_into(buffer)
    return count


def connect(
    address: str, tls: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None
) -> socket.socket:
    """A new connection, by TLS if that is given, which goes on with a session if that is."""
    host, _, port = address.rpartition(":")
    line = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line if tls is None else tls.wrap_socket(line, server_hostname=host, session=session)
