"""`weir job` against a real broker: events in, decisions out, killed under load, stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import with_constant
from confluent_kafka.admin import AdminClient
from job_broker_kit import WAIT_S, Broker, check_dead_letters, load
from job_kit import Job
from replayed_kit import check, limits, warm
from stack_kit import series_at, until

from streaming.contract.topics import Cluster
from weir.stack.kafka import LocalKafka
from weir.stack.process import running
from weir.stack.topics import ensure_topics


def tear(checkpoint: Path) -> None:
    """Take the content of the last files that Spark wrote, as a power cut does that comes before the disk."""
    for pattern in ("offsets/*", "commits/*", "state/0/*/*.delta"):
        files = (path for path in checkpoint.glob(f"*/{pattern}") if path.stem.isdecimal())
        for path in sorted(files, key=lambda path: int(path.stem))[-2:]:
            path.write_bytes(b"")


@pytest.mark.soak
def test_a_job_killed_under_load_decides_as_one_that_was_not(
    make_job: Callable[..., Job], broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    """kill -9 of the driver, of the JVM, a power cut: every request decided, repeats equal, as in one run.

    Its checkpoint is a URI, as Spark's users write them.
    """
    job = make_job(checkpoint=(tmp_path / "checkpoint").as_uri())
    limits(broker)
    first = job.start()
    # Decided once before the load, or the kill would find nothing but start-up.
    warm(broker)
    names = load(broker, 0, 4.0)
    job.end(signal.SIGKILL)
    names |= load(broker, len(names), 2.0)
    second = job.start()
    assert not running(first["jvm_pid"]) and second["jvm_pid"] != first["jvm_pid"]
    names |= load(broker, len(names), 1.0)
    broker.wait_for(names)
    os.kill(second["jvm_pid"], signal.SIGKILL)
    assert job.ended(WAIT_S) == 1
    last = job.log.read_text().splitlines()[-1]
    assert last.startswith("weir: the JVM is gone: ") and last.endswith("spark.log")
    tear(tmp_path / "checkpoint")
    second = job.start()
    assert "TORN: " in (said := job.log.read_text()) and " to batch " in said
    assert "Exception while sending command" not in said
    names |= load(broker, len(names), 1.0)
    check(broker, bootstrap, names, tmp_path)
    assert series_at(second["metrics"])["weir_job_restarts_total"] == 2
    check_dead_letters(broker)
    assert series_at(second["metrics"])["weir_job_decisions_total"] > 0
    assert job.end(signal.SIGTERM) == 0
    assert not running(second["jvm_pid"])


@pytest.mark.soak
def test_a_job_says_which_of_its_topics_was_deleted(tmp_path: Path) -> None:
    """Decisions come back by Spark's own sink: told. Policies gone: it ends, and knows the new ones later."""
    often = with_constant.at("streaming.kafka_io.topic_watch", "CHECK_MS", 200)
    made = LocalKafka(tmp_path / "kafka", auto_create_topics=True, properties={"num.partitions": "3"})
    with made as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        job, broker = Job(tmp_path, kafka.bootstrap, module=often), Broker(kafka.bootstrap)
        with job:
            ready = job.start()
            for number in range(5):
                broker.limit(f"u{number}", 1)
            broker.request("first", "u1", 0)
            broker.flush()
            broker.wait_for({"first"})
            admin.delete_topics(["weir.decisions"])["weir.decisions"].result(WAIT_S)
            broker.request("second", "u1", 0)
            broker.flush()
            fault = 'weir_job_topic_faults{fault="broker_defaults",topic="weir.decisions"}'
            until(lambda: fault in series_at(ready["metrics"]), limit_s=WAIT_S)
            assert "weir.decisions has the broker's settings" in job.log.read_text()
            admin.delete_topics(["weir.policies"])["weir.policies"].result(WAIT_S)
            assert job.ended(WAIT_S) == 1
            assert "topic weir.policies is not there" in job.log.read_text().splitlines()[-1]
            # More than it had read of the old topic, before the job is there to see it come.
            ensure_topics(Cluster(kafka.bootstrap))
            for number in range(9):
                broker.limit(f"u{number}", 77)
            broker.flush()
            job.start()
            broker.request("third", "u1", 0)
            broker.flush()
            decision = until(lambda: decided(broker, "third"), limit_s=WAIT_S)
            assert decision["limit"] == 77
            assert job.end(signal.SIGTERM) == 0


def decided(broker: Broker, name: str) -> Any:
    """The decision of this id, in whichever partition."""
    return next((d for d in map(orjson.loads, broker.values("weir.decisions")) if d["id"] == name), None)


def test_a_job_without_its_broker_says_so_in_one_line() -> None:
    """Nothing listens: exit 1 within the limit."""
    found = with_constant.at("streaming.job.process.service", "TOPICS_LIMIT_S", 1)
    words = [sys.executable, *found, "job", "--kafka", "127.0.0.1:1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
