"""Requests made to hold the proxy's loop: each is refused or done in turns, and nobody else waits for it."""

import struct
from collections.abc import Callable, Iterator

import pytest
from cluster_kit import Cluster, fresh
from process_kit import ProxyProcess, proxy_process
from proxy_kit import until
from wire_client import Closed, WireClient

from enforcer.wire.kafka import frames
from enforcer.wire.kafka.codec import told

ALLOWED_S = 0.25
"""What the proxy allows itself is 0.05; but the machine is shared with the broker and with other tests."""
CREATE, DELETE, FIND_COORDINATOR, SASL_AUTHENTICATE = 19, 20, 10, 36
POLICY_VIOLATION, INVALID_TOPIC = 44, 17
TOPICS = told(CREATE, "Topics(Name:text ErrorCode ErrorMessage:text)")


@pytest.fixture(scope="module")
def attacked(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy in a process of its own, so that only its own work is measured."""
    with proxy_process(cluster, tmp_path_factory.mktemp("loop"), cluster.topics) as running:
        yield running


def head(key: int, version: int, flexible: bool = True) -> bytes:
    """A request's header without client id."""
    return struct.pack(">hhih", key, version, 7, -1) + (b"\0" if flexible else b"")


def creation(count: int, configs: int = 0, assignments: int = 0) -> bytes:
    """CreateTopics v7 of many topics with short names, or of one with many details."""
    name = frames.string(fresh("t"), True)
    row = name + struct.pack(">ih", 1, 1)
    row += frames.uvarint(assignments + 1) + (bytes(4) + b"\1\0") * assignments
    row += frames.uvarint(configs + 1) + b"\1\1\0" * configs + b"\0"
    return head(CREATE, 7) + frames.uvarint(count + 1) + row * count + struct.pack(">i", 1) + b"\0\0"


def old_deletion(count: int) -> bytes:
    """DeleteTopics v1 of many topics."""
    return head(DELETE, 1, False) + struct.pack(">i", count) + b"\0\1a" * count + struct.pack(">i", 1)


FRAMES: dict[str, Callable[[], bytes]] = {
    "909,090 topics in 10 MB": lambda: creation(909_090),
    "120,000 topics in 2 MB": lambda: creation(120_000),
    "600,000 configurations": lambda: creation(1, configs=600_000),
    "300,000 assignments": lambda: creation(1, assignments=300_000),
    "600,000 deletions": lambda: old_deletion(600_000),
    "a million tags": lambda: head(CREATE, 7)[:-1] + frames.uvarint(1_000_000) + b"\1\0" * 1_000_000,
    "a login of 10 MB": lambda: head(SASL_AUTHENTICATE, 2) + frames.uvarint(10**7 + 1) + bytes(10**7) + b"\0",
    "a login that is all commas": lambda: (
        head(SASL_AUTHENTICATE, 2) + frames.uvarint(500_001) + b"," * 500_000 + b"\0"
    ),
    "100,000 coordinators": lambda: (
        head(FIND_COORDINATOR, 4) + b"\0" + frames.uvarint(100_001) + b"\2a" * 100_000 + b"\0"
    ),
}


@pytest.mark.parametrize("attack", FRAMES)
def test_one_frame_does_not_hold_the_loop(attacked: ProxyProcess, attack: str) -> None:
    """Whatever becomes of it: answered, refused or its connection ended."""
    before = attacked.held_up(ALLOWED_S)
    with WireClient(attacked.bootstrap) as bad:
        bad.socket.settimeout(20)
        try:
            bad.send_frame(FRAMES[attack]())
            bad.receive_frame()
        except (Closed, OSError):
            pass
    with WireClient(attacked.bootstrap) as bystander:
        assert bystander.metadata([]).brokers
    assert attacked.held_up(ALLOWED_S) == before


def test_many_small_requests_take_turns(attacked: ProxyProcess) -> None:
    """20,000 requests in a row that the proxy answers itself."""
    before = attacked.held_up(ALLOWED_S)
    one = struct.pack(">ihhih", 11, 18, 99, 7, -1) + b"\0"
    with WireClient(attacked.bootstrap) as bad:
        bad.socket.sendall(one * 20_000)
        for _ in range(20_000):
            bad.receive_frame()
    assert attacked.held_up(ALLOWED_S) == before


def answered_topics(frame: bytes) -> dict[str, tuple[int, str | None]]:
    """Topic -> error and message of a CreateTopics v7 response."""
    return {name: (error, message) for name, error, message in TOPICS(frame, 7)}


def test_too_many_topics_are_refused_and_the_connection_goes_on(attacked: ProxyProcess) -> None:
    """Error 44 with what to do, nothing created; the same client's next request is served."""
    rows = b"".join(
        frames.string(f"many-{number}", True) + struct.pack(">ih", 1, 1) + b"\1\1\0"
        for number in range(2_001)
    )
    with WireClient(attacked.bootstrap) as client:
        client.send_frame(head(CREATE, 7) + frames.uvarint(2_002) + rows + struct.pack(">i", 1) + b"\0\0")
        answer = answered_topics(client.receive_frame())
        assert len(answer) == 2_000 and {error for error, _ in answer.values()} == {POLICY_VIOLATION}
        assert "2000 topics" in str(answer["many-0"][1])
        known = [topic.name for topic in client.metadata(["many-0"]).topics if not topic.error_code]
        assert known == []
    assert attacked.metric('requests_total{api="CreateTopics",outcome="too_many_items"}') >= 1


def test_the_largest_request_that_is_served(attacked: ProxyProcess) -> None:
    """2,000 deletions of topics that are not there: looked up, counted and answered within the time."""
    before = attacked.held_up(ALLOWED_S)
    names = [f"absent-{number}-{'x' * 200}" for number in range(2_000)]
    with WireClient(attacked.bootstrap) as client:
        answer = client.delete(names)
        assert {part.error_code for part in answer.responses} == {3}
    until(lambda: attacked.metric("connections") == 0)
    assert attacked.held_up(ALLOWED_S) == before


@pytest.mark.parametrize("client_id", [b"\xff" * 32_767, b"\xff" * 11_000, b"", bytes(range(32)) * 900])
def test_odd_client_ids(attacked: ProxyProcess, client_id: bytes) -> None:
    """A client id that is not UTF-8 is repeated as it came, so its requests are answered like any other."""
    name = fresh("odd")
    row = frames.string(name, True) + struct.pack(">ih", 1, 1) + b"\1\1\0"
    body = frames.uvarint(2) + row + struct.pack(">i", 10_000) + b"\0\0"
    frame = struct.pack(">hhih", CREATE, 7, 7, len(client_id)) + client_id + b"\0" + body
    with WireClient(attacked.bootstrap) as client:
        client.send_frame(frame)
        assert {topic: error for topic, (error, _) in answered_topics(client.receive_frame()).items()} == {
            name: 0
        }
    assert attacked.metric('bad_frames_total{reason="internal"}') == 0


def test_odd_topic_names(attacked: ProxyProcess) -> None:
    """A name that grows when it is decoded and encoded is passed on as it came; the broker refuses it."""
    raw = b"\xff" * 9_000
    compact, classic = frames.uvarint(len(raw) + 1) + raw, struct.pack(">h", len(raw)) + raw
    one_partition, timeout = struct.pack(">ih", 1, 1), struct.pack(">i", 1_000)
    with WireClient(attacked.bootstrap) as client:
        client.send_frame(head(CREATE, 7) + b"\2" + compact + one_partition + b"\1\1\0" + timeout + b"\0\0")
        assert [error for error, _ in answered_topics(client.receive_frame()).values()] == [INVALID_TOPIC]
        client.send_frame(
            head(CREATE, 4, False)
            + struct.pack(">i", 1)
            + classic
            + one_partition
            + bytes(8)
            + timeout
            + b"\0"
        )
        assert struct.pack(">h", INVALID_TOPIC) in client.receive_frame()
        client.send_frame(head(DELETE, 6) + b"\2" + compact + bytes(16) + b"\0" + timeout + b"\0")
        assert client.receive_frame()
    assert attacked.metric('bad_frames_total{reason="internal"}') == 0
