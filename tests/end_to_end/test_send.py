"""All five quota systems as a user sees them: the examples sent to a running stack, its job killed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack_kit import WEIR, Up, decisions, read_all, replayed, until

EXAMPLES = Path(__file__).parents[2] / "conf" / "examples"
RECORDINGS = sorted(str(path) for path in EXAMPLES.glob("*.jsonl"))
Decisions = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A stack with the examples' policies, whose parts are restarted when they die."""
    with Up(
        tmp_path_factory.mktemp("send"), "--policies", str(EXAMPLES / "policies.yaml"), "--restart"
    ) as stack:
        yield stack


def written(up: Up) -> Decisions:
    """The decisions on the topic."""
    return decisions(read_all(up.ready["kafka"], "weir.decisions"))


@pytest.mark.soak
def test_a_job_killed_in_the_middle_of_a_send_decides_as_one_that_was_not(
    examples: Up, tmp_path: Path
) -> None:
    """The examples' numbers come out, and equal the uninterrupted replay of what was sent."""
    before = examples.ready
    sender = subprocess.Popen(
        [str(WEIR), "send", *RECORDINGS, "--kafka", examples.ready["kafka"]], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: ("limit", "l2") in written(examples), what="the first decisions", limit_s=60)
        subprocess.run(["kill", "-9", str(examples.pid("job"))], check=True)
        assert sender.wait(timeout=90) == 0
    finally:
        sender.kill()
    examples.wait_ready(newer_than=before)

    def removed() -> list[dict[str, Any]]:
        return [d for (kind, _), d in written(examples).items() if kind == "share" and "removed" in d]

    # The last thing that the recordings cause: silent members expire, by ticks alone.
    until(lambda: len(removed()) == 5, what="the end of all shares", limit_s=120)
    live, again = written(examples), decisions(replayed(examples.ready["kafka"], tmp_path))
    assert {key: again.get(key) for key in live} == live
    # Live, a batch writes a limit once, and only if it changed; all else is written.
    assert {kind for kind, _ in again.keys() - live.keys()} <= {"limit"}
    assert_seed_numbers(again)


def assert_seed_numbers(decided: Decisions) -> None:
    """5.6, 12,000 ms; 11.11/55.56/33.33; 80/20 to 57.5/42.5; 11 -> 9; 30 -> 0, 0, 10; the eviction plan."""
    assert decided["admission", "m2"]["rate"] == pytest.approx(5.6)
    assert decided["admission", "m5"]["throttle_time_ms"] == 12_000
    shares = [d for (kind, _), d in decided.items() if kind == "share" and d["limits"]]
    by_member: dict[str, list[float]] = {}
    for share in sorted(shares, key=lambda d: d["ts"]):
        series = by_member.setdefault(f"{share['group']}/{share['broker']}", [])
        series.append(round(share["limits"]["publishRateInMsgs"], 2))
    assert [by_member[f"residual/b{number}"][0] for number in (1, 2, 3)] == [11.11, 55.56, 33.33]
    assert by_member["stealing/b1"][:3] == [80.0, 65.0, 57.5]
    assert by_member["stealing/b2"][:3] == [20.0, 35.0, 42.5]
    left = [decided["dispatch", f"d{number}"]["available"]["msgs"] for number in range(1, 7)]
    assert left == [0, 9, 0, 0, 0, 10]
    limits = [decided["limit", f"l{number}"]["limit"] for number in range(1, 6)]
    assert limits == sorted(limits, reverse=True)
    assert decided["backlog", "k1"]["evict"] == [
        {"subscription": "slow", "ledger": 1, "entry": 99, "entries": 100}
    ]
    assert decided["backlog", "k1"]["oldestBacklogMessageAgeSeconds"] == 100
