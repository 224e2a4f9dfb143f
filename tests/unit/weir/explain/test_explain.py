"""`weir explain` from files: decisions of the real laws, and what a proxy decided by itself."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from event_kit import T0 as T
from event_kit import backlog, delivery, ledger, report, sample, subscription, tick
from plan_kit import file_of, policies_of

from streaming.replay import replay_local
from weir.cli import main
from weir.explain import words

ENTRIES = {
    "quotas[user=alice]": {"controller_mutation_rate": 5, "controller_mutation_burst": 500},
    "quotas[user=sam]": {
        "controller_mutation_rate": 5, "algorithm": "sampled_rate", "controller_mutation_burst": 500,
    },
    "resourcegroups.rg1": {"publishRateInMsgs": 100},
    "namespaces.acme/orders": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10},
        "backlogQuotaMap": {"destination_storage": {"limitSize": 1000, "policy": "producer_request_hold"}},
    },
    "backpressure.partitions.*": {"algorithm": "aimd"},
}  # fmt: skip


def request(name: str, ts: int, mutations: int, user: str = "alice", **fields: Any) -> dict[str, Any]:
    """A strict request for one topic."""
    return {
        "type": "request", "id": name, "ts": ts, "proxy": "p1", "user": user, "subject": f"user={user}",
        "items": [{"name": f"topic-{name}", "mutations": mutations}], **fields,
    }  # fmt: skip


EVENTS: list[dict[str, Any]] = [
    {"type": "policy", "ts": 1, "path": path, "value": value} for path, value in ENTRIES.items()
] + [
    request("p1-1", T, 560),
    request("p1-2", T + 1_000, 80),
    request("s-1", T, 600, "sam"),
    request("s-2", T + 5, 80, "sam"),
    report(0, "b1", {"rg1": {"publishedMsg": 600}}, 60_000, id="g1"),
    tick(60_000),
    delivery(0, 25, 100, entries=5, id="d1", proxy="p1"),
    sample("l1", 0, 14, inflight=55),
    backlog([ledger(1, 10, 1500)], subscription("slow", 1, -1)) | {"id": "k1"},
]


def log_of(folder: Path, events: Iterable[Any], *decisions: Any) -> list[str]:
    """Files of both, as options."""
    return ["--decisions", file_of(folder, "out.jsonl", *decisions),
            "--events", file_of(folder, "events.jsonl", *events)]  # fmt: skip


def decided_log(folder: Path, events: Iterable[Any], **sections: Any) -> list[str]:
    """Events, and what the laws decide on them, as options; policies may stand in a file."""
    replayed = replay_local(policies_of(folder, "policies.yaml", **sections), [log_of(folder, events)[3]])
    assert not replayed.dead_letters
    return log_of(folder, events, *(line + b"\n" for line in replayed.decisions))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Those of EVENTS."""
    return decided_log(tmp_path_factory.mktemp("explain"), EVENTS)


def explained(capsys: pytest.CaptureFixture[str], files: list[str], *words: str) -> dict[str, Any]:
    """What is said as JSON; its keys are those of the contract."""
    assert main(["explain", *words, *files, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(found) == ["decision", "event", "policy", "before", "after", "events"]
    return found


@pytest.mark.parametrize(
    ("name", "path", "before", "after", "led"),
    [
        ("p1-1", "quotas[user=alice]", {"tokens": 500.0}, {"tokens": -60.0}, ["p1-1"]),
        ("p1-2", "quotas[user=alice]", {"tokens": -55.0}, {"tokens": -55.0}, ["p1-1", "p1-2"]),
        ("s-2", "quotas[user=sam]", {"rate": 6.0}, {"rate": 6.0}, ["s-1", "s-2"]),
        (
            "d1", "namespaces.acme/orders.subscriptionDispatchRate",
            {"subscription": {"msgs": 0, "bytes": 0}}, {"subscription": {"msgs": 25, "bytes": 0}}, ["d1"],
        ),
        ("l1", "backpressure.partitions.*", None, 99, ["l1"]),
        (
            "k1", "namespaces.acme/orders.backlogQuotaMap.destination_storage", None,
            {"backlogSize": 1500, "oldestBacklogMessageAgeSeconds": -1, "exceeded": ["destination_storage"]},
            ["k1"],
        ),
    ],
)  # fmt: skip
def test_every_law(
    capsys: pytest.CaptureFixture[str], files: list[str], name: str, path: str, before: Any, after: Any,
    led: list[str],
) -> None:  # fmt: skip
    """Decision, event, policy, balances, and what led to it."""
    found = explained(capsys, files, "--id", name)
    assert found["decision"]["id"] == found["event"]["id"] == name
    entry = next(entry for entry in ENTRIES if path.startswith(entry))
    assert found["policy"]["path"] == path and found["policy"]["value"] == ENTRIES[entry]
    assert found["policy"]["version"] == 1 + len(ENTRIES)
    assert (found["before"], [event["id"] for event in found["events"]]) == (before, led)
    if name != "l1":
        assert found["after"] == after


@pytest.mark.parametrize(
    ("broker", "backlog", "before"),
    [
        ({}, True, 3), ({}, False, 3),
        ({"dispatchThrottlingOnBatchMessageEnabled": True}, True, 23),
        ({"dispatchThrottlingOnNonBacklogConsumerEnabled": False}, True, 3),
        ({"dispatchThrottlingOnNonBacklogConsumerEnabled": False}, False, 28),
    ],
)  # fmt: skip
def test_before_a_delivery_stood_what_it_was_not_charged(
    broker: dict[str, bool], backlog: bool, before: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """25 messages in five entries: by the settings one or the other counts, or neither where all is read."""
    delivery = next(event for event in EVENTS if event.get("id") == "d1") | {"backlog": backlog}
    policy = {"type": "policy", "ts": 1, "path": "broker", "value": broker}
    said = {
        "type": "dispatch", "available": {"msgs": 0, "bytes": None}, "throttle_time_ms": 1_000,
        "acquired": {"subscription": {"msgs": 28, "bytes": 0}}, "limited_by": None, "entries_to_read": 0,
    }  # fmt: skip
    found = explained(capsys, log_of(tmp_path, (policy, delivery), delivery | said), "--id", "d1")
    assert found["before"] == {"subscription": {"msgs": before, "bytes": 0}}


def test_a_share_is_found_by_its_subject(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    """It is for no one event: those of its group led to it."""
    found = explained(capsys, files, "--subject", "rg1/b1", "--at", str(T + 60_000))
    assert found["decision"]["type"] == "share" and found["event"] is None
    assert found["after"] == {"publishRateInMsgs": 100.0} and found["policy"]["path"] == "resourcegroups.rg1"
    assert [event["id"] for event in found["events"]] == ["g1"]


def test_the_newest_before_a_time_counts(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    """By the subject."""
    for at, name in ((T + 999, "p1-1"), (T + 1_000, "p1-2")):
        assert explained(capsys, files, "--subject", "user=alice", "--at", str(at))["decision"]["id"] == name
    assert main(["explain", "--subject", "user=alice", "--at", str(T - 1), *files]) == 1
    assert "no decision on user=alice" in capsys.readouterr().err


def test_words_for_people(capsys: pytest.CaptureFixture[str], files: list[str]) -> None:
    """What happened, for how long, by which entry, and what came before."""
    assert main(["explain", "--id", "p1-2", *files]) == 0
    said = capsys.readouterr().out
    for part in (
        "user=alice at 2026-11-20T09:25:01.000Z [p1-2]", "reject", "Decided by the job.",
        "wait 11000 ms, until 2026-11-20T09:25:12.000Z", '{"tokens":-55.0} before',
        "Policy: quotas[user=alice], version 6", "3            quotas[user=alice]", "<- in force",
        "request by p1 [p1-1]",
    ):  # fmt: skip
        assert part in said, part


def test_what_a_proxy_decided_is_found_without_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its event says so; with the job's admission beside it both are told."""
    decided = {"outcome": "reject", "rejected": ["topic-p1-7"], "throttle_time_ms": 900, "tokens": -4.5}
    events = [request("p1-7", T, 3, decided=decided)]
    files = log_of(tmp_path, events)
    found = explained(capsys, files, "--id", "p1-7")
    assert found["decision"]["outcome"] == "reject" and found["after"] == {"tokens": -4.5}
    assert main(["explain", "--id", "p1-7", *files]) == 0
    assert "at once by the proxy p1" in (said := capsys.readouterr().out) and "has not confirmed it" in said
    admission = {
        "type": "admission", "id": "p1-7", "ts": T, "proxy": "p1", "subject": "user=alice", "limit": 5.0,
        "mutations": 0, "law": {"outcome": "allow", "rejected": []}, **decided,
    }  # fmt: skip
    assert main(["explain", "--id", "p1-7", *log_of(tmp_path, events, admission)]) == 0
    assert "the law would have said allow" in capsys.readouterr().out


def test_an_event_of_another_type_may_have_its_id(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken for what was decided: of a delivery it said that the decision cannot be read."""
    events = log_of(tmp_path, [request("d1", T, 3), *EVENTS])[3]
    found = explained(capsys, [*files[:3], events], "--id", "d1")
    assert found["event"]["type"] == "dispatch_usage"
    assert found["before"] == {"subscription": {"msgs": 0, "bytes": 0}}


@pytest.mark.parametrize(
    "bad",
    [
        {"items": "none"}, {"items": [{"name": "t"}]}, {"items": [7]}, {"items": None}, {"decided": {}},
        {"decided": {"outcome": "allow", "rejected": 7}}, {"type": ["request"]},
    ],
)  # fmt: skip
def test_an_event_that_the_job_buries_explains_nothing(
    bad: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is it in the way of the others, whatever its fields are."""
    told = [request("p1-8", T, 3) | bad, request("p1-7", T - 1, 3)]
    admission = {
        "type": "admission", "id": "p1-8", "ts": T, "proxy": "p1", "subject": "user=alice", "limit": 5.0,
        "outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 4.5,
    }  # fmt: skip
    files = log_of(tmp_path, told, admission)
    found = explained(capsys, files, "--id", "p1-8")
    assert found["event"] is None and [event["id"] for event in found["events"]] == ["p1-7"]
    assert main(["explain", "--id", "p1-8", *files]) == 0
    told.append(EVENTS[1] | {"path": "quotas[user=alice]"})
    untyped = {name: value for name, value in admission.items() if name != "type"}
    unlimited = admission | {"tokens": None, "rate": 1.0, "limit": 0.0}
    for malformed in (admission | {"tokens": "many"}, admission | {"applied_ts": 10**18}, untyped, unlimited):
        files = log_of(tmp_path, told, malformed)
        assert main(["explain", "--id", "p1-8", *files]) == 1 and "cannot be read" in capsys.readouterr().err


def test_an_event_that_was_applied_later_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a dump marks it, whatever its own time is; by that it came before what it really came behind."""
    late = request("late", T, 3, applied_ts=T + 300_000)
    files = decided_log(tmp_path, [*EVENTS, late, request("next", T + 299_000, 1)])
    found = explained(capsys, files, "--id", "late")
    assert found["event"]["ts"] == T and found["event"]["id"] == "late"
    assert [event["id"] for event in found["events"]] == ["p1-1", "p1-2", "next", "late"]
    found = explained(capsys, files, "--id", "next")
    assert [event["id"] for event in found["events"]] == ["p1-1", "p1-2", "next"]


def test_what_the_log_does_not_say_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests of an import name no subject, and policies stand in a file: it told that nothing limits, that
    no event led to it, nor those before it, and a balance below 0.
    """
    events = [request(f"s-{n}", T + n, 300, "sam") for n in range(2)]
    events.append(request("a-1", T, 1, "alice", client_id="sam"))
    for event in events:
        del event["subject"]
    events.append(sample("s-0", 0, 14))
    quota = {"entity": {"user": "sam"}, **ENTRIES["quotas[user=sam]"]}
    files = decided_log(tmp_path, events, quotas=[quota])
    found = explained(capsys, files, "--id", "s-1")
    assert (found["before"], found["after"]) == (None, {"rate": 6.0})
    assert [event["id"] for event in found["events"]] == ["s-0", "s-1"]
    assert main(["explain", "--id", "s-1", *files]) == 0
    assert "Policy: none in the log limits it at version 1." in capsys.readouterr().out


def test_a_wait_of_ages_is_told() -> None:
    """Under a rate that is to let nobody in: beyond the year 9999 nothing was explained."""
    (told,) = words._outcomes({"throttle_time_ms": 2**53, "ts": 0})
    assert told == "  It has to wait 9007199254740992 ms, until 287396-10-12T08:59:00.992Z."
