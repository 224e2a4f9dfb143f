"""Pulsar's access log as events: from a log of a real broker, and from lines that no broker writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from weir.cli import main
from weir.imports.pulsar_access_log import PulsarAccessLog
from weir.imports.reading import LogLine

LOG = Path(__file__).parent / "logs" / "pulsar-4.0.txt"
"""Of a real broker (tests/pulsar/test_access_log.py)."""
T = "persistent://acme/orders/"
Import = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import a log and read the events."""

    def run(text: str, *words: str) -> list[dict[str, Any]]:
        log, out = tmp_path / "access.log", tmp_path / "events.jsonl"
        log.write_text(text)
        assert main(["import", "pulsar-access-log", str(log), "--out", str(out), *words]) == 0
        return [orjson.loads(line) for line in out.read_bytes().splitlines()]

    return run


def line(method: str, path: str, status: int = 204, *, user: str = "-", minute: int = 0) -> str:
    """A line as Pulsar writes it."""
    time = f"26/Nov/2026:10:{minute:02}:00 +0100"
    return f'10:00 INFO ::1 - {user} [{time}] "{method} {path} HTTP/1.1" {status} 0 "-" "curl" 8\n'


def test_a_real_log(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    """What succeeded, by Pulsar's own names; a topic's own deletion counts its partitions, once."""
    seen = [
        (e["api"], *(tuple(item.values()) for item in e["items"]))
        for e in imported(LOG.read_text(), "--partitions", "4")
    ]
    assert seen == [
        ("createNonPartitionedTopic", (f"{T}one", 1)),
        ("createPartitionedTopic", (f"{T}many", 4)),
        ("updatePartitionedTopic", (f"{T}many", 4)),
        ("createMissedPartitions", (f"{T}many", 4)),
        ("deleteTopic", (f"{T}one", 1)),
        ("deletePartitionedTopic", (f"{T}many", 6)),
        ("createNonPartitionedTopic", (f"non-{T}nine", 1)),
    ]
    told = capsys.readouterr().err
    assert "3 requests: the log does not say how many partitions; 4 counted" in told
    assert "4 refused by the broker" in told


def test_who_and_when(imported: Import) -> None:
    """The time in its own zone; a user where Jetty names one."""
    path = "/admin/v2/persistent/acme/orders/t"
    nobody, alice = imported(line("PUT", path) + line("PUT", path, user="alice"))
    assert (nobody["user"], alice["user"], alice["ts"]) == ("ANONYMOUS", "alice", 1_795_683_600_000)


def test_a_partition_deleted_by_itself(imported: Import) -> None:
    """It counts once nothing more of its topic comes."""
    base = "/admin/v2/persistent/acme/orders/t"
    later = line("DELETE", base, minute=30)
    for log in (line("DELETE", f"{base}-partition-1") + later, later + line("DELETE", f"{base}-partition-1")):
        names = {item["name"] for event in imported(log) for item in event["items"]}
        assert names == {f"{T}t", f"{T}t-partition-1"}


def test_bad_lines(imported: Import, tmp_path: Path) -> None:
    """A line cut short, and a path that servers read in several ways."""
    good = line("PUT", "/admin/v2/persistent/acme/orders/t")
    bad = [good[:60] + "\n", line("PUT", "/admin/v2/persistent/acme/../t"), good.replace("Nov", "Xyz")]
    dead = tmp_path / "dead.jsonl"
    assert len(imported(good + "".join(bad), "--dead-letters", str(dead))) == 1
    letters = [orjson.loads(letter) for letter in dead.read_bytes().splitlines()]
    assert [letter["offset"] for letter in letters] == [2, 3, 4]
    assert "no whole request" in letters[0]["reason"] and "dots" in letters[1]["reason"]


def test_what_is_held_is_looked_at_once_a_second() -> None:
    """A namespace's clean-up deletes partitions of thousands of topics: each line looked at all of them."""

    class Held(dict[str, Any]):
        looks = 0

        def items(self) -> Any:
            self.looks += 1
            return super().items()

    source = PulsarAccessLog(1)
    source._held = held = Held()
    path = "/admin/v2/persistent/acme/orders/t{}-partition-1"
    texts = [line("DELETE", path.format(number), minute=number // 50 * 2) for number in range(100)]
    lines = [LogLine("f", number, text.strip().encode()) for number, text in enumerate(texts, 1)]
    assert [event["items"][0]["name"] for each in lines[:50] for event in source.events(each)] == []
    # Two minutes later nothing more of them comes.
    assert len([*source.events(lines[50])]) == 50
    assert held.looks == 2 and len(held) == 1
