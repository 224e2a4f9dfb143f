"""Kafka's request log as events: from logs of real brokers, and from lines that no broker writes."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from import_kit import MADE, create, delete, line, made_of, produce

from weir.cli import main
from weir.imports import reading

LOGS = Path(__file__).parent / "logs"
"""Of real brokers (tests/kafka/test_request_log.py makes them anew), without the lists of configurations."""
HOUR_MS = 3_600_000
Import = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import files, or lines, and read the events."""

    def run(*logs: Path | list[str], words: tuple[str, ...] = ()) -> Any:
        files = []
        for number, log in enumerate(logs):
            if isinstance(log, list):
                path = tmp_path / f"{number}.log"
                path.write_text("".join(f"{line}\n" for line in log))
                log = path
            files.append(str(log))
        out = tmp_path / "events.jsonl"
        assert main(["import", "kafka-request-log", *files, "--out", str(out), *words]) == 0
        return [orjson.loads(line) for line in out.read_bytes().splitlines()]

    return run


@pytest.mark.parametrize("version", ("3.9", "4.1", "4.3"))
def test_a_real_log(imported: Import, version: str) -> None:
    """Who asked for which partitions, and how many bytes each user wrote and read, once each."""
    events = imported(LOGS / f"kafka-{version}.txt")
    made, written, read = made_of(events)
    assert made == MADE
    assert written == {"quota/user=alice"} and read == {"quota/user=bob"}


def test_a_real_log_replays(imported: Import, tmp_path: Path) -> None:
    """Under a limit of one partition a second and a burst of 4: the first request is alice's whole quota."""
    policies, out = tmp_path / "p.yaml", tmp_path / "decisions.jsonl"
    quota = "{entity: {user: alice}, controller_mutation_rate: 1, controller_mutation_burst: 4}"
    policies.write_text(f"version: 1\nquotas:\n  - {quota}\n")
    imported(LOGS / "kafka-4.3.txt")
    events = str(tmp_path / "events.jsonl")
    assert main(["replay", "--policies", str(policies), "--events", events, "--out", str(out)]) == 0
    decisions = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    told = [d["outcome"] for d in decisions if d["type"] == "admission" and d["subject"] == "user=alice"]
    assert told == ["throttle", "throttle", "throttle", "throttle"]


def test_the_command_that_comes_next_works_as_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the file's name is."""
    log, out = tmp_path / "a.log", tmp_path / "my events.jsonl"
    log.write_text(f"{create(0)}\n")
    assert main(["import", "kafka-request-log", str(log), "--out", str(out)]) == 0
    assert f"weir replay --policies FILE --events '{out}' --out" in capsys.readouterr().err


def test_times_are_those_of_the_requests(imported: Import) -> None:
    """The line's time is the request's end, in the zone that was named."""
    (utc,) = imported([create(0)])
    (berlin,) = imported([create(0)], words=("--timezone", "Europe/Berlin"))
    assert utc["ts"] == 1_795_687_200_500 - 20
    assert berlin["ts"] == utc["ts"] - HOUR_MS
    (told,) = imported([create(0).replace("00,500", "00.500Z")], words=("--timezone", "Europe/Berlin"))
    assert told["ts"] == utc["ts"]


def test_the_hour_that_a_zone_has_twice(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    """Summer time ends at 3:00: what is logged at 2:10 after 2:50 is twenty minutes later, also if the next
    line comes after half an hour."""
    times = [f"2026-10-25 02:{minute}:00,000" for minute in (50, 10, 45)]
    reports = imported([produce(1, time) for time in times], words=("--timezone", "Europe/Berlin"))
    used = [r["ts"] for r in reports if any(r["usage"]["quota/user=alice"].values())]
    assert [(ts - used[0]) // 60_000 for ts in used] == [0, 20, 55]
    assert "twice" not in capsys.readouterr().err


def test_a_file_that_begins_in_that_hour(imported: Import, capsys: pytest.CaptureFixture[str]) -> None:
    """By summer time, though a later file was looked at before; as one of another broker's is. It may be an
    hour later, which is said."""
    logs = [[produce(1, f"2026-10-25 {clock}:00,000")] for clock in ("02:10", "04:10")]
    reports = imported(*logs, words=("--timezone", "Europe/Berlin"))
    used = [r["ts"] for r in reports if any(r["usage"]["quota/user=alice"].values())]
    assert used[1] - used[0] == 3 * HOUR_MS
    assert "1 lines in an hour that Europe/Berlin has twice: taken for the first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("log", "mutations", "note"),
    [
        ([create(0, told=5)], [5], ""),
        ([create(89)], [3], ""),
        ([create(36)], [], ""),
        ([create(0, partitions=-1)], [1], "1 topics: the log does not say how many partitions"),
        ([create(0), delete("t")], [3, 3], ""),
        ([create(0), delete("t", 89), delete("t"), delete("t")], [3, 3, 3, 1], "1 topics: the log"),
        ([create(0, validateOnly=True), delete("t")], [3, 1], "1 topics: the log"),
    ],
)  # fmt: skip
def test_what_a_request_costs(
    imported: Import, capsys: pytest.CaptureFixture[str], log: list[str], mutations: list[int], note: str
) -> None:
    """What the broker has done, or has refused by its own quota alone; of unknown size: one."""
    events = imported(log)
    assert [item["mutations"] for event in events for item in event["items"]] == mutations
    assert note in capsys.readouterr().err


def test_metadata_lags(imported: Import) -> None:
    """What a request has changed is believed for some seconds, whatever Metadata says; then no more."""
    topic = {"errorCode": 0, "name": "t", "topicId": "x" * 22, "partitions": [1, 2]}
    seen = line(3, response={"topics": [topic]})
    later = seen.replace("10:00:00", "10:00:06")
    for log, held in (([create(0), seen, delete("t")], 3), ([create(0), later, delete("t")], 2)):
        deleted = imported(log)[-1]
        assert deleted["items"] == [{"name": "t", "mutations": held}]


def test_brokers_are_no_clients(imported: Import) -> None:
    """What brokers ask their controller, and what they copy from each other, is nobody's use."""
    heartbeat = line(63, listener="CONTROLLER")
    own = create(0).replace("PLAINTEXT", "CONTROLLER")
    part = [{"topic": "t", "partitions": [{"recordsSizeInBytes": 9}]}]
    copies = [
        line(1, request=request, response={"responses": part})
        for request in ({"replicaId": 2}, {"replicaState": {"replicaId": 2}})
    ]
    assert imported([heartbeat, own, *copies]) == []


def test_periods_and_silence(imported: Import) -> None:
    """A report a period; the first one without use says so, and then there is none."""
    minutes = ("10:00", "10:00", "10:01", "10:05")
    reports = imported([produce(100, f"2026-11-26 {minute}:30,000") for minute in minutes])
    begin = reports[0]["ts"] // 60_000
    told = [(r["ts"] // 60_000 - begin, r["usage"]["quota/user=alice"]["publishedBytes"]) for r in reports]
    assert told == [(0, 200), (1, 100), (2, 0), (5, 100)]
    assert {r["broker"] for r in reports} == {"10.0.0.1:9092"}


def test_bytes_of_a_reported_period(imported: Import) -> None:
    """They are a report of their own, and whoever was in the first one is silent afterwards all the same."""
    minutes = ("10:00", "10:01", "10:02", "10:00", "10:03")
    log = [produce(100, f"2026-11-26 {minute}:30,000") for minute in minutes]
    log[3] = log[3].replace("User:alice", "User:bob")
    log[1:3] = [each.replace("User:alice", "User:carol") for each in log[1:3]]
    reports = imported(log)
    assert len({report["id"] for report in reports}) == len(reports) == 5
    told = [pair for report in reports for pair in report["usage"].items()]
    silent = [name for name, own in told if not own["publishedBytes"]]
    assert silent == ["quota/user=alice", "quota/user=carol"]


def test_policies_name_the_groups(imported: Import, tmp_path: Path) -> None:
    """The level that limits, and resource groups by the topic's name; refused records are no group's."""
    policies = tmp_path / "p.yaml"
    policies.write_text(
        "version: 1\nquotas:\n  - entity: {user: null, client-id: c}\n    producer_byte_rate: 5\n"
        "resourcegroups: {rg1: {publishRateInBytes: 5}}\ntenants: {acme: {resourcegroup: rg1}}\n"
    )
    answer = {"name": "acme.orders.a", "partitionResponses": [{"index": 0, "errorCode": 6}]}
    time = "2026-11-26 10:00:00,000"
    log = [produce(100, time), produce(10, time, response={"responses": [answer]})]
    (report,) = imported(log, words=("--policies", str(policies)))
    assert {group: counts["publishedBytes"] for group, counts in report["usage"].items()} == {
        "quota/user=alice,client-id=c": 110, "rg1": 100,
    }  # fmt: skip


def test_files_come_in_the_order_of_their_times(imported: Import, tmp_path: Path) -> None:
    """The newest is the one without a date in its name, so it comes first as a shell sorts them."""
    old = tmp_path / "request.log.1.gz"
    old.write_bytes(gzip.compress(create(0, 7).replace("10:00:00", "09:00:00").encode()))
    deleted, created = sorted(imported([delete("t")], old), key=lambda event: -event["ts"])
    assert created["id"] == "request.log.1.gz:1"
    assert deleted["items"][0]["mutations"] == 7


@pytest.mark.parametrize("ahead", [[], [produce(1, "2286-11-20 00:00:00,000")]])
def test_files_of_several_brokers_are_read_together(imported: Import, ahead: list[str]) -> None:
    """What one broker deletes another has created meanwhile, though its own file began later, or with a clock
    that was wrong."""
    deleted = delete("t").replace("10:00:00", "10:30:00")
    events = imported([produce(1, "2026-11-26 09:00:00,000"), "no time", deleted], [*ahead, create(0, 7)])
    asked = [event for event in events if event["type"] == "request"]
    assert [event["api"] for event in asked] == ["CreateTopics", "DeleteTopics"]
    assert [event["items"][0]["mutations"] for event in asked] == [7, 7]


def test_each_file_has_that_hour_twice_by_itself(imported: Import) -> None:
    """By summer time at 2:55, though another broker's next line is of 3:20."""
    brokers = [("10.0.0.1:9092-x", "02:55"), ("10.0.0.2:9092-x", "03:20")]
    logs = [
        [produce(1, f"2026-10-25 {clock}:00,000", connection=broker) for clock in ("01:00", last)]
        for broker, last in brokers
    ]
    reports = imported(*logs, words=("--timezone", "Europe/Berlin"))
    used = sorted(r["ts"] for r in reports if any(r["usage"]["quota/user=alice"].values()))
    assert [(ts - used[0]) // 60_000 for ts in used] == [0, 0, 115, 200]


def test_progress(
    imported: Import, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What takes long says how far it is, and how long it will take."""
    monkeypatch.setattr(reading, "_SAY_EVERY_S", 0.0)
    imported([create(0)] * 2_000)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("import: 0.log: 1,000 lines, ") and "%, " in first and first.endswith(" s left")
    assert second.startswith("import: 0.log: 2,000 lines, ")
