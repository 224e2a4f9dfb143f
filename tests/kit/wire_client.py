"""A Kafka client of one socket that sends exactly what a test wants, and when."""

import socket
import struct
import time
from contextlib import AbstractContextManager
from typing import Any

from kafka.protocol.admin import topics
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import metadata
from kafka_kit import CORRELATION_ID, build

LIMIT_S = 20.0


class Closed(Exception):
    """The other side closed the connection."""


class WireClient(AbstractContextManager[Any]):
    """One connection to a proxy or broker at `HOST:PORT`."""

    def __init__(self, address: str, client_id: str = "wire") -> None:
        host, _, port = address.rpartition(":")
        self.client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: ApiMessage, correlation_id: int = CORRELATION_ID) -> None:
        """Send a request; its version is the message's."""
        message.with_header(correlation_id, self.client_id)
        self.send_frame(bytes(message.encode(header=True)))

    def send_frame(self, frame: bytes) -> None:
        """Send a request that is encoded already."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self, limit_s: float = LIMIT_S) -> bytes:
        """The next response's bytes; raises TimeoutError or Closed."""
        self.socket.settimeout(limit_s)
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def receive(self, cls: type[ApiMessage], version: int, limit_s: float = LIMIT_S) -> Any:
        """The next response."""
        return cls.decode(self.receive_frame(limit_s), version=version, header=True)

    def answer_to(self, message: ApiMessage, limit_s: float = LIMIT_S) -> Any:
        """Send a request; the next response, which has its API and version."""
        self.send(message)
        return self.receive(message.header.get_response_class(), message.API_VERSION, limit_s)

    def silent_for(self, limit_s: float) -> bool:
        """Whether nothing comes for so long."""
        self.socket.settimeout(limit_s)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) is None
        except TimeoutError:
            return True

    def closed_within(self, limit_s: float) -> bool:
        """Whether the other side ends the connection in that time."""
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(65_536):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def create(self, names: dict[str, int], version: int = 7, **more: Any) -> Any:
        """CreateTopics with replication factor 1; the whole answer."""
        return self.answer_to(create_request(names, version, **more))

    def create_misconfigured(self, name: str, count: int) -> Any:
        """CreateTopics with a configuration that no broker knows."""
        message = create_request({name: count})
        config = topics.CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
        message.topics[0].configs = [build(config, 7, name="no.such", value="1")]
        return self.answer_to(message)

    def delete_by_id(self, ids: list[Any]) -> Any:
        """DeleteTopics by topic id, as from version 6 on."""
        parts = [{"name": None, "topic_id": topic_id} for topic_id in ids]
        return self.answer_to(build(topics.DeleteTopicsRequest, 6, topics=parts, timeout_ms=10_000))

    def delete(self, names: list[str], version: int = 5) -> Any:
        """DeleteTopics by name."""
        message = build(topics.DeleteTopicsRequest, version, topic_names=names, timeout_ms=10_000)
        return self.answer_to(message)

    def grow(self, name: str, count: int, version: int = 3) -> Any:
        """CreatePartitions: raise a topic to `count` partitions."""
        parts = [{"name": name, "count": count}]
        return self.answer_to(build(topics.CreatePartitionsRequest, version, topics=parts, timeout_ms=10_000))

    def metadata(
        self, names: list[str], version: int = 9, create: bool = False, limit_s: float = LIMIT_S
    ) -> Any:
        """Metadata of some topics."""
        return self.answer_to(metadata_request(names, version, create), limit_s)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise Closed(f"after {len(data)} of {count} bytes")
            data += part
        return bytes(data)


def create_request(names: dict[str, int], version: int = 7, validate_only: bool = False) -> ApiMessage:
    """A CreateTopics request, name -> partitions."""
    parts = [
        {"name": name, "num_partitions": count, "replication_factor": 1} for name, count in names.items()
    ]
    return build(
        topics.CreateTopicsRequest, version, topics=parts, timeout_ms=10_000, validate_only=validate_only
    )  # type: ignore[no-any-return]  # kafka-python has no types


def metadata_request(names: list[str], version: int = 9, create: bool = False) -> ApiMessage:
    """A Metadata request for some topics."""
    parts = [{"name": name} for name in names]
    return build(metadata.MetadataRequest, version, topics=parts, allow_auto_topic_creation=create)  # type: ignore[no-any-return]  # kafka-python has no types


def errors(answer: Any) -> dict[str, int]:
    """Topic -> error code of an answer to one of the three admin APIs."""
    parts = next(
        getattr(answer, name) for name in ("topics", "results", "responses") if hasattr(answer, name)
    )
    return {part.name: part.error_code for part in parts}
