"""A law that is one file and one line runs through everything: nothing else names the laws."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from event_kit import tick
from law_kit import T0, Shard
from pyspark.sql import SparkSession

from streaming.contract.topics import Topics
from streaming.job.grouping_keys import grouping_keys_of
from streaming.job.operator import warm_up
from streaming.job.replay import replay_staged, stage
from streaming.kafka_io.policy_topic import PolicyLog
from streaming.laws.registry import LAWS
from streaming.log.reading import read_lines
from streaming.replay import replay_local, summarise
from weir.logs.send_lines import Addresser, recorded
from weir.logs.tail_lines import describe

KIT = Path(__file__).parents[1] / "kit"
SHARDS, TASKS = 7, 3


@pytest.fixture
def toy() -> Iterator[Any]:
    """The toy law among the laws, and gone again afterwards."""
    before = replace(LAWS)
    import toy_law

    if toy_law.SPEC.name not in LAWS.by_name:
        LAWS.add(toy_law.SPEC)
    grouping_keys_of.cache_clear()
    yield toy_law
    LAWS.by_name, LAWS.by_event = before.by_name, before.by_event
    LAWS.by_decision, LAWS.readers = before.by_decision, before.readers
    grouping_keys_of.cache_clear()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Beats of three hearts, and one of none."""
    events: list[dict[str, Any]] = [
        {"type": "beat", "id": f"b{n}", "ts": T0 + n, "heart": "abc"[n % 3]} for n in range(30)
    ]
    events.append({"type": "beat", "id": "x", "ts": T0})
    file = tmp_path / "beats.jsonl"
    file.write_bytes(b"\n".join(map(orjson.dumps, events)))
    (tmp_path / "policies.yaml").write_text("version: 1\n")
    return file


def test_a_law_of_one_file_is_replayed_by_both_engines(
    toy: Any, log: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """Routed by its own key, decided in shards, sorted, summed up and shown: the same bytes."""
    policies = str(tmp_path / "policies.yaml")
    local = replay_local(policies, [str(log)])
    assert [orjson.loads(line)["beats"] for line in local.decisions] == [n // 3 + 1 for n in range(30)]
    (letter,) = local.dead_letters
    assert orjson.loads(letter)["reason"] == "heart: missing; text was expected"
    assert summarise(local.decisions)["subjects"]["a"] == {"events": 10, "pulses": 10}
    assert describe(orjson.loads(local.decisions[-1])).split()[1:5] == ["pulse", "c", "10", "beats"]
    spark.sparkContext.addPyFile(str(KIT / "toy_law.py"))
    (tmp_path / "work").mkdir()
    staged = stage(policies, [str(log)], tmp_path / "work")
    staged = replace(staged, names=toy.Names(staged.names))
    assert replay_staged(spark, staged, shards=SHARDS, tasks=TASKS) == local


def test_a_law_of_one_file_lives_in_the_job(toy: Any, log: Path, tmp_path: Path) -> None:
    """Its decisions stand and are said again; `weir send` finds topic and key; workers warm it up."""
    warm_up()
    shard = Shard({}, law="hearts", replay=False)
    (first,) = shard.step([{"type": "beat", "id": "b", "ts": T0, "heart": "a"}], T0)
    assert shard.step([tick(20_000)], T0) == [first | {"repeat": True}]
    (more,) = shard.step([{"type": "beat", "id": "c", "ts": T0 + 21_000, "heart": "a"}], T0)
    assert more["beats"] == 2
    addresser = Addresser(topics=Topics(), log=PolicyLog(), now_ms=T0)
    sent = [addresser.address(item) for item in recorded([str(log)])]
    found = {(record.topic, record.key) for record in sent}
    assert found >= {("weir.usage", key) for key in (b"a", b"b", b"c")}
    assert len(list(read_lines([str(log)]))) == len(sent)
