"""What becomes of a client is noted (tests/soak)."""

import os
import resource
import socket
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soak_clients
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kafka_kit import build
from proxy_kit import until
from soak_clients import Client, Crowd, Holder, Laggard, Sender
from soak_history import History, Recorder

NOT_LEADER = 6


class Failing(Client):
    """Ends by an error."""

    def run(self) -> None:
        """See Client."""
        raise ValueError("broken\noff")


def test_a_client_that_fails_is_noted(tmp_path: Path) -> None:
    """Its thread's end alone would look like that of any other."""
    file = tmp_path / "history.jsonl"
    with Recorder(file) as told, Failing(told, "who"):
        pass

    failed = {"kind": "failed", "who": "who", "why": "ValueError('broken\\noff')"}
    assert History.read(file)["failed"] == [failed]


def test_a_crowd_leaves_descriptors_to_others() -> None:
    """Relays and logs are in its process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        crowd = Crowd("{}:{}".format(*server.getsockname()), 50)
        crowd._stopping.wait = lambda timeout=None: True  # type: ignore[method-assign]
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 40, limits[1]))
        try:
            crowd._run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.setblocking(False)
        # Who came, not which descriptors there are: other tests' threads open some too.
        came = []
        with suppress(BlockingIOError):
            while True:
                came.append(server.accept()[0])
    for one in came:
        one.close()
    assert len(came) == 20


class Broker(AbstractContextManager[Any]):
    """A connection to a broker that leads for three requests, if somebody asks the right one."""

    def __init__(self, to: str, _who: str) -> None:
        self.to, self._left = to, 3

    def __exit__(self, *_: object) -> None:
        """See WireClient."""

    def metadata(self, names: list[str]) -> Any:
        """See WireClient."""
        brokers = [SimpleNamespace(node_id=node, host="h", port=node) for node in (1, 2)]
        parts = [SimpleNamespace(leader_id=2)]
        return SimpleNamespace(brokers=brokers, topics=[SimpleNamespace(partitions=parts)])

    def send_frame(self, frame: bytes) -> None:
        """See WireClient."""
        assert (self.to, frame[:4]) == ("h:2", b"\0\1\0\x0c")

    def receive(self, kind: Any, version: int) -> Any:
        """See WireClient."""
        self._left -= 1
        code = 0 if self._left else NOT_LEADER
        parts = [{"partition_index": 0, "error_code": code}]
        return build(kind, version, error_code=0, responses=[{"topic": "t", "partitions": parts}])


def test_who_holds_slots_follows_the_leader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each request is noted with what became of it."""
    monkeypatch.setattr(soak_clients, "WireClient", Broker)
    monkeypatch.setattr(soak_clients, "_CRAWL_S", 0.01)
    with Recorder(tmp_path / "h") as told:
        holder = Holder(told, "h", "first:1", "t", 100)
        noted: list[Any] = []
        monkeypatch.setattr(told, "note", lambda kind, **fields: noted.append(fields["code"]))
        with holder:
            until(lambda: len(noted) > 6, what="requests")
    assert noted[:6] == [0, 0, NOT_LEADER, 0, 0, NOT_LEADER]


class Records:
    """A consumer of one record at a time, which Kafka lets commit at the second try."""

    there, refused = 1, 0

    def __init__(self, _properties: object) -> None:
        self._offset = -1

    def assign(self, places: list[TopicPartition]) -> None:
        """See Consumer."""
        self._offset = places[0].offset

    def poll(self, _s: float) -> Any:
        """See Consumer."""
        at_end = self._offset == Records.there
        number, self._offset = self._offset, self._offset + 1
        error = KafkaError(KafkaError._PARTITION_EOF) if at_end else None
        return SimpleNamespace(error=lambda: error, offset=lambda: number, value=lambda: b"v ")

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """See Consumer."""
        Records.refused += 1
        if Records.refused % 2:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def close(self) -> None:
        """See Consumer."""


def test_who_lags_reads_all_when_it_is_told_to_stop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else it stands where it said."""
    monkeypatch.setattr(soak_clients, "Consumer", Records)
    monkeypatch.setattr(soak_clients, "_CRAWL_S", 0.01)
    with Recorder(tmp_path / "h") as told, Laggard(told, "g", "h:1", "t", 600.0):
        until(lambda: Records.refused == 2, what="the first look")
        Records.there = 3

    history = History.read(tmp_path / "h")
    assert [one["offset"] for one in history["committed"]] == [1, 3]
    assert [(one["offset"], one["value"]) for one in history["read"]] == [(0, "v"), (1, "v"), (2, "v")]


def test_a_sender_wants_as_many_records_as_it_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However often it hears of what became of them."""

    class Heard:
        def __init__(self, _properties: object) -> None:
            self.count = 0

        def produce(self, _topic: str, _value: bytes, on_delivery: Any) -> None:
            self.count += 1

        def poll(self, limit_s: float) -> int:
            time.sleep(min(limit_s, 0.001))
            return 1

        def flush(self, _s: float) -> int:
            return 0

    monkeypatch.setattr(soak_clients, "Producer", Heard)
    begun = time.monotonic()
    with Recorder(tmp_path / "h") as told, Sender(told, "p", "h:1", "t", 20.0) as sender:
        until(lambda: sender._producer.count >= 5, what="records")
    assert time.monotonic() - begun >= 4 / 20
