"""`weir job --candidate`: policies that are tried on live traffic, beside those in force."""

from pathlib import Path
from typing import Any

import pytest
from bench_kit import bench
from job_broker_kit import TOPICS, Event
from law_kit import quota, request
from stack_kit import series_at

from weir.cli import main

QUOTA = "{entity: {user: alice}, controller_mutation_rate: 1, controller_mutation_burst: 9}"
STRICTER = f"version: 1\nquotas: [{QUOTA}]\n"
SETTINGS = "job:\n  profile: throughput\n  shuffle_partitions: 2\n  shards: 4\n"
CLIENTS = 8


@pytest.mark.soak
def test_candidates_decide_beside_the_policies_in_force(tmp_path: Path) -> None:
    """A subject of theirs is one, though those in force have several, in several shards; metrics tell."""
    (tmp_path / "stricter.yaml").write_text(STRICTER)
    (tmp_path / "none.yaml").write_text("version: 1\n")
    files = [str(tmp_path / f"{name}.yaml") for name in ("stricter", "none")]
    words = [word for file in files for word in ("--candidate", file)]
    with bench(tmp_path, SETTINGS, 2, *words) as busy:
        busy.tell({f"quotas[user=alice,client-id=c{client}]": quota(100) for client in range(CLIENTS)})
        for client in range(CLIENTS):
            subject = f"user=alice,client-id=c{client}"
            event: Event = request(f"r{client}", 0, 5, subject=subject, client_id=f"c{client}", strict=True)
            del event["ts"]
            busy.write(TOPICS.requests, event, subject)
        note = busy.job.start()
        decided = busy.until(lambda events: len(events) >= 3 * CLIENTS)
        metrics = series_at(note["metrics"])
    named: dict[str | None, list[Event]] = {}
    for one in decided:
        named.setdefault(one.get("candidate"), []).append(one)
    assert {name: len(own) for name, own in named.items()} == {None: 8, "stricter": 8, "none": 8}
    assert {one["outcome"] for one in named[None]} == {"allow"}
    assert len({one["subject"] for one in named[None]}) == CLIENTS
    assert {one["subject"] for one in named["stricter"]} == {"user=alice"}
    assert sorted(one["outcome"] for one in named["stricter"]) == ["allow"] * 2 + ["reject"] * 6
    assert {one["subject"] for one in named["none"]} == {""}
    for outcome, count in (("allow", 2), ("reject", 6)):
        labels = f'{{candidate="stricter",law="mutation",outcome="{outcome}"}}'
        assert metrics[f"weir_job_candidate_decisions_total{labels}"] == count


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a": "version: 1\nquota: []\n"}, "a.yaml:2: quota: "),
        ({name: "version: 1\n" for name in "abcde"}, "5 are given; expected at most 4"),
        ({"a": "version: 1\n", "b/a": "version: 1\n"}, "two files have one name"),
    ],
)  # fmt: skip
def test_a_bad_candidate_stops_the_job(
    files: dict[str, str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it has asked any broker, with status 2."""
    words = []
    for name, text in files.items():
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        words += ["--candidate", str(file)]
    try:
        status: Any = main(["job", "--kafka", "127.0.0.1:1", *words])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr().err
    assert status == 2 and told in said, said
