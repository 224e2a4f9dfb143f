"""Raises, which end by themselves, and the mode of all policies."""

from pathlib import Path
from typing import Any

import mode_kit
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mode_kit import STRETCHES, TOPIC

from streaming.policy.policy_set import PolicySet
from streaming.policy.timeline import PolicyTimeline
from streaming.replay import replay_local

RATE = "controller_mutation_rate"
PATHS = ["quotas[user=a]", "quotas[user=b]"]
TIMES = st.integers(0, 12)


def raised(until: int, own: int = 1) -> dict[str, Any]:
    """An entry that is raised until a time, ms."""
    return {RATE: own, "raise": {RATE: 100, "until": f"1970-01-01T00:00:00.{until:03}Z"}}


VALUES = st.none() | st.integers(1, 3).map(lambda rate: {RATE: rate}) | st.builds(raised, TIMES)
CHANGES = st.lists(st.tuples(st.sampled_from(PATHS), VALUES, TIMES), max_size=10)


def timeline_of(changes: list[Any]) -> PolicyTimeline:
    """A timeline that starts with one entry, which is raised."""
    timeline = PolicyTimeline({PATHS[0]: raised(6)})
    for change in changes:
        timeline.apply(*change)
    return timeline


def reference(changes: list[Any], ts: int) -> tuple[dict[str, Any], int]:
    """Rates in force at a time and the version, by going through everything from the start."""
    entries: dict[str, Any] = {PATHS[0]: raised(6)}
    made = [change for change in sorted(changes, key=lambda change: change[2]) if change[2] <= ts]
    for path, value, _ in made:
        entries[path] = value
    rates = {path: value[RATE] for path, value in entries.items() if value is not None}
    for path in rates:
        until = entries[path].get("raise", {}).get("until")
        if until is not None and ts < int(until[20:23]):
            rates[path] = 100
    return {path: {RATE: rate} for path, rate in rates.items()}, 1 + len(made)


@given(CHANGES, TIMES)
def test_a_raise_ends_by_itself_and_is_no_version(changes: list[Any], ts: int) -> None:
    """In whatever order changes come and times are asked for, before and after it is written down."""
    timeline = timeline_of(changes)
    timeline.at(ts)
    for each in (timeline, PolicyTimeline.from_json(*timeline.to_json())):
        for at in (12, 0, ts):
            assert (dict(each.at(at).entries), each.at(at).version) == reference(changes, at)
        assert each.newest_version == 1 + len(changes)
    timeline.forget_before(ts)
    copy = PolicyTimeline.from_json(*timeline.to_json())
    copy.apply("broker", {}, 13)
    for at in range(ts, 13):
        assert (dict(copy.at(at).entries), copy.at(at).version) == reference(changes, at)


@pytest.mark.parametrize("others", [0, 100], ids=["folded", "kept"])
def test_a_change_that_comes_late_revives_no_raise(others: int) -> None:
    """Be it older than what was forgotten, and be that folded into the first entries or not."""
    timeline = PolicyTimeline({f"quotas[user=u{number}]": {RATE: 1} for number in range(others)})
    timeline.apply(PATHS[0], raised(7), 3)
    timeline.forget_before(9)
    timeline.apply(PATHS[1], {RATE: 1}, 5)
    for each in (timeline, PolicyTimeline.from_json(*timeline.to_json())):
        assert each.at(10).entries[PATHS[0]] == {RATE: 1}
        assert each.since(10) == 7


@given(CHANGES)
def test_what_is_in_force_changes_only_at_times_of_change(changes: list[Any]) -> None:
    """Laws settle at these, and at no other."""
    timeline = timeline_of(changes)
    for at in range(12):
        if timeline.at(at).entries != timeline.at(at + 1).entries:
            assert timeline.changes(at, at + 1) == [at + 1]
            assert timeline.since(at + 1) == at + 1
    assert timeline.changed(-1, 20, written=True) == sorted(
        [(ts, path) for path, _, ts in changes], key=lambda change: change[0]
    )


def test_ends_of_what_was_overwritten_take_no_room() -> None:
    """A raise that is renewed each hour for years has one end."""
    timeline = PolicyTimeline()
    for number in range(100):
        timeline.apply(PATHS[0], raised(900 - number), number)
    assert timeline.changes(100, 1000) == [801]
    timeline.count(801)
    assert timeline.at(801).entries == {PATHS[0]: {RATE: 1}}
    timeline.apply(PATHS[0], None, 300)
    assert timeline.changes(100, 1000) == [300, 801]


class Counted(str):
    """A path that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("read", [False, True], ids=["made", "read"])
def test_an_end_is_found_among_thousands(read: bool) -> None:
    """Ten thousand raises that end at one time, each of them written anew, took seconds."""
    timeline = PolicyTimeline({f"quotas[user=u{number}]": raised(900) for number in range(1000)})
    if read:
        timeline = PolicyTimeline.from_json(*timeline.to_json())
    Counted.compared = 0
    for number in range(1000):
        timeline.apply(Counted(f"quotas[user=u{number}]"), raised(800), number % 7)
    assert Counted.compared < 20_000
    assert timeline.changes(100, 1000) == [800]
    assert [path for _, path in timeline.changed(100, 1000)] == [f"quotas[user=u{n}]" for n in range(1000)]


def test_the_mode_stands_beside_what_is_written() -> None:
    """A set says what is in force; what was written stays."""
    broker = {"dispatchThrottlingRateInMsg": 1, "resourceUsagePublishIntervalInSecs": 5}
    written = {PATHS[0]: {RATE: 1}, "tenants.a": {"resourcegroup": "g"}, "broker": broker}
    assert PolicySet(written).entries is written
    tracked = PolicySet({**written, "mode": "track"})
    assert tracked.entries == {**written, PATHS[0]: {RATE: 1, "shadow": True}} and tracked.tracks
    off = PolicySet({**written, "mode": "off"})
    assert off.entries == {"broker": {"resourceUsagePublishIntervalInSecs": 5}} and not off.tracks
    assert off.written == {**written, "mode": "off"}
    assert PolicySet({**written, "mode": "enforce"}).entries == written


def test_all_five_laws_go_by_raise_and_mode(tmp_path: Path) -> None:
    """A raise until it ends; tracked, decided in shadow; off, nothing is limited, and no debt is left."""
    policies, log = tmp_path / "policies.yaml", tmp_path / "events.jsonl"
    policies.write_text(mode_kit.POLICIES)
    log.write_bytes(mode_kit.lines())
    replayed = replay_local(str(policies), [str(log)])
    assert not replayed.dead_letters
    decided = [orjson.loads(line) for line in replayed.decisions]
    said = {
        kind: {one["id"]: one for one in decided if one["type"] == kind}
        for kind in ("admission", "dispatch", "limit", "backlog")
    }
    shares = [one for one in decided if one["type"] == "share"]
    assert [said["admission"][name].get("tokens") for name in STRETCHES] == [900, -49, -45, None, -49]
    assert [said["admission"][name]["policy_version"] for name in STRETCHES] == [1, 1, 2, 3, 4]
    free = [said["dispatch"][name]["available"]["msgs"] for name in STRETCHES]
    assert free == [85, 0, 0, None, 0]
    assert [said["limit"][name]["limit"] for name in STRETCHES if name != "off"] == [7, 3, 3, 3]
    assert "off" not in said["limit"]
    limits = [said["backlog"][name]["backlogQuotaLimitSize"] for name in STRETCHES]
    assert limits == [1000, 100, 100, -1, 100]
    assert [one["limits"]["publishRateInMsgs"] for one in shares] == [30, 10, 10, 10]
    assert [one["shadow"] for one in shares] == [False, False, True, False]
    for kind, of_kind in said.items():
        shadows = {name for name, one in of_kind.items() if one.get("shadow")}
        assert shadows == {"track"}, kind
    assert said["dispatch"]["track"]["topic"] == TOPIC
