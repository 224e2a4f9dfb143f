"""`weir send` on a real broker."""

import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from cluster_kit import Cluster

from streaming.contract.topics import Topics
from weir.cli import main
from weir.logs.topic_reader import TopicReader
from weir.stack.kafka import free_port

EXAMPLES = Path(__file__).resolve().parents[2] / "conf" / "examples"


def keyed(cluster: Cluster, topic: str) -> list[tuple[str, Any]]:
    """What stands on a topic: key, and the event or the bytes that are none."""
    with closing(TopicReader(cluster.kafka.bootstrap, {})) as reader:
        there = [message for span in reader.spans(topic) for message in reader.messages(span)]
    pairs = [((message.key() or b"").decode(), message.value() or b"") for message in there]
    return [(key, orjson.loads(value) if value.startswith(b"{") else value) for key, value in pairs]


def test_the_examples_arrive_by_key_and_in_order(
    cluster: Cluster, topics: Topics, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, stamped and moved to now; a line that is no event too; packed files as well."""
    assert main(["policy", "apply", str(EXAMPLES / "policies.yaml"), *options]) == 0
    packed = tmp_path / "odd.jsonl.gz"
    packed.write_bytes(gzip.compress(b"garbage\n"))
    files = [str(file) for file in sorted(EXAMPLES.glob("*.jsonl"))]
    assert main(["send", *files, str(packed), "--at-once", *options]) == 0
    said = capsys.readouterr().err
    assert f"done: {topics.requests} 7, {topics.usage} 27 delivered" in said
    assert "1 lines are no valid events, sent as they are; odd.jsonl.gz:1: not JSON" in said
    requests = keyed(cluster, topics.requests)
    assert [key for key, _ in requests] == [
        "", "user=carol", "user=carol", "user=alice", "user=alice", "user=carol", "user=alice",
    ]  # fmt: skip
    assert {event["subject"] for key, event in requests if key} == {"user=alice", "user=carol"}
    usage = [event for _, event in keyed(cluster, topics.usage)]
    assert [event["ts"] for event in usage] == sorted(event["ts"] for event in usage)
    # The recording begins at a whole round, and so does what was sent.
    assert usage[0]["ts"] % 5_000 == 0


def test_times_are_kept_when_asked(
    cluster: Cluster, topics: Topics, options: list[str], tmp_path: Path
) -> None:
    """Bytes and all, since nothing needs a stamp."""
    line = b'{ "type": "tick", "ts": 1795166700000 }'
    (tmp_path / "t.jsonl").write_bytes(line + b"\n")
    assert main(["send", str(tmp_path / "t.jsonl"), "--keep-times", *options]) == 0
    assert keyed(cluster, topics.usage) == [("", orjson.loads(line))]


@pytest.mark.soak
def test_what_cannot_be_sent_ends_with_1(
    cluster: Cluster, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """No file, no topics, no cluster: one line each."""
    file = str(EXAMPLES / "dispatch.jsonl")
    assert main(["send", "nowhere.jsonl", *options]) == 1
    assert "nowhere.jsonl: cannot be read" in capsys.readouterr().err
    settings = Path(options[-1])
    settings.write_text("kafka: {topic_prefix: none.}\n")
    assert main(["send", file, *options]) == 1
    assert "there is no topic none.policies" in capsys.readouterr().err
    assert main(["send", file, "--kafka", f"127.0.0.1:{free_port()}"]) == 1
    assert "cannot read weir.policies" in capsys.readouterr().err
