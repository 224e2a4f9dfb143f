"""`weir replay --engine spark` on a standalone cluster: the bytes of the local engine, however it is cut."""

from pathlib import Path

import orjson
import pytest
import yaml
from mixed_log import TODAY, mixed
from plan_kit import file_of, policies_of
from spark_cluster_kit import WatchedCluster
from stack_kit import did

from streaming.log.writing import write_lines
from weir.stack.kafka import HOST


@pytest.mark.soak
def test_the_bytes_are_those_of_one_process(cluster: WatchedCluster, tmp_path: Path) -> None:
    """Whatever the files, partitions and shards; nothing is left beside the output."""
    events = mixed(1200, seed=31)
    policies = policies_of(tmp_path, "p.yaml", **TODAY)
    whole = file_of(tmp_path, "log.jsonl", *events, b"rubbish\n")
    parts = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl.gz", "c.parquet")]
    for number, file in enumerate(parts):
        write_lines(file, map(orjson.dumps, events[number::3]))
    out, letters = tmp_path / "out.jsonl", tmp_path / "letters.jsonl"

    def replayed(files: list[str], *words: str) -> tuple[bytes, bytes]:
        written = "--out", str(out), "--dead-letters", str(letters)
        did("replay", "--policies", policies, "--events", *files, *written, *words)
        return out.read_bytes(), letters.read_bytes()

    for files, partitions, shards in (([whole], 2, 5), (parts, 3, 8)):
        settings = tmp_path / "settings.yaml"
        job = {
            "master": cluster.url, "shuffle_partitions": partitions, "shards": shards,
            "spark_conf": {"spark.driver.host": HOST},
        }  # fmt: skip
        settings.write_text(yaml.safe_dump({"job": job}))
        there = replayed(files, "--engine", "spark", "--settings", str(settings))
        assert there == replayed(files) and there[0]
    assert not list(tmp_path.glob(".weir-replay-*"))
