"""Each rule over histories finds what it is there to find, and nothing in a good one (tests/soak)."""

from pathlib import Path

import pytest
from soak_bounds import beyond, most_above
from soak_checks import DEMANDED_S, IDLE_S, RULES, SAMPLES_MIN, SOON_MS, check, successes
from soak_histories import (
    AWAY,
    GOOD,
    HOUR_MS,
    WHOSE,
    changed,
    down,
    fired,
    flight,
    found_ended,
    kept,
    killed,
    load,
    made,
    placed,
    sample,
    sent,
    without,
)
from soak_history import Entry, History, Recorder


def event(name: str) -> Entry:
    """A second request for a topic."""
    return {"type": "request", "id": "again", "items": [{"name": name, "mutations": 1}]}


AGAIN = [
    {"kind": "event", "event": event("a")},
    {"kind": "decision", "decision": {
        "type": "admission", "id": "again", "ts": 9000, "subject": WHOSE, "mutations": 1, "rejected": [],
    }, "at": 9000},
]  # fmt: skip
NOBODY = {"type": "admission", "id": "r-a", "ts": 0, "subject": "", "mutations": 1, "rejected": []}
TOLD = [{**entry, "begun": 40, "ended": 50} for entry in 3 * made("a", 0) if entry["kind"] == "made"]
LATER = [{**entry, "code": 89} if entry["kind"] == "made" else entry for entry in made("later", 10_000)]
"""Refused when its proxy had been killed and was there again."""
OTHER = {"kind": "decision", "at": 2000, "decision": {
    "type": "admission", "id": "r-c", "ts": 2000, "subject": WHOSE, "mutations": 0, "rejected": [], "x": 1,
}}  # fmt: skip


LATE = kept("refuse", 9, 62_000, 8)
OTHERS = {**LATE[0], "who": "refuse-two", "value": "refuse-two 1", "offset": None}
WRITTEN = {**LATE[1], "value": "refuse-one 8", "offset": 9}
TOO_SOON = [
    *kept("refuse", 10, 99_000, None, 44),
    *({**one, "begun": 199_000} for one in GOOD if one["kind"] == "committed"),
]


def expired(at: int) -> Entry:
    """A proxy gave a slot back by its deadline."""
    return {"kind": "expired", "part": "two", "pid": 7, "count": 1, "at": at}


MINUTES = [*GOOD, load("made", "m-one", DEMANDED_S)]
SHORT = {**down(20_000, 9.0), "what": "stop", "target": "jvm"}


def planned(what: str, long: bool) -> Entry:
    """A fault of the JVM."""
    return {"kind": "planned", "what": what, "target": "jvm", "long": long}


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        pytest.param("lost", without("record", 1), id="an acknowledged record is not there"),
        pytest.param("lost", changed("record", 2, value="p 9"), id="another stands in its place"),
        pytest.param("lost", changed("sent", 4, value="p 5"), id="acknowledged without a place, and gone"),
        pytest.param("twice", [*GOOD, placed("record", 4, 2)], id="one is there twice"),
        pytest.param("twice", [*GOOD, placed("record", 4, 3)], id="one stands behind a later one"),
        pytest.param("skipped", without("read", 4), id="a consumer passed over one"),
        pytest.param("skipped", changed("read", 0, value="p 9"), id="it read what is not there"),
        pytest.param("gone", without("topic", 0), id="a topic was promised and is not there"),
        pytest.param("gone", [*GOOD, {"kind": "topic", "name": "c"}], id="one was refused and is there"),
        pytest.param("charged", without("event", 1), id="one was promised and not charged"),
        pytest.param("charged", changed("event", 4, event={"type": "refund", "of": "r-a"}), id="given back"),
        pytest.param("charged", [*GOOD, *AGAIN], id="one was charged twice"),
        pytest.param("refused", [*GOOD, *LATER], id="one was refused and charged"),
        pytest.param("refused", [*GOOD, *LATER, killed(99_000, "two")], id="another proxy was killed"),
        pytest.param("charged", changed("decision", 0, decision=NOBODY), id="one was charged to nobody"),
        pytest.param("decided", without("decision", 2), id="a request was not decided"),
        pytest.param("decided", [*GOOD, AGAIN[1]], id="what nobody asked was decided"),
        pytest.param("decided", [*GOOD, OTHER], id="decided twice"),
        pytest.param("decided", [*GOOD, GOOD[1]], id="one request stands there twice"),
        pytest.param("above", [*GOOD, *made("d", 1000), *made("e", 1000)], id="too many topics"),
        pytest.param("above", [*GOOD, *TOLD], id="by the answers"),
        pytest.param(
            "above", [*GOOD, *({**sent(9, 9), "begun": 900, "ended": 950} for _ in range(4))], id="bytes"
        ),
        pytest.param("above", [*GOOD, *(placed("read", 3, 4) for _ in range(9))], id="too many deliveries"),
        pytest.param("replayed", changed("replay", 0, status=1), id="the replay says otherwise"),
        pytest.param("replayed", without("replay", 0), id="there was no replay"),
        pytest.param("away", changed("back", 0, took_s=None), id="a part never came back"),
        pytest.param(
            "grown", [*GOOD, *(sample(99 + n, 400 << 20) for n in range(SAMPLES_MIN))], id="memory grows"
        ),
        pytest.param(
            "grown", [*GOOD, *(sample(99 + n, 100 << 20, 500) for n in range(SAMPLES_MIN))], id="descriptors"
        ),
        pytest.param("left_over", [*GOOD, {"kind": "left", "part": "one", "pid": 7}], id="a process is left"),
        pytest.param("idle", [one for one in GOOD if one["kind"] != "fault"], id="nothing befell anybody"),
        pytest.param("idle", [], id="an empty history"),
        pytest.param("idle", [one for one in GOOD if one["kind"] != "load"], id="no begin and no end"),
        pytest.param("idle", [*GOOD, load("made", "m-two", 999)], id="one of two proxies makes nothing"),
        pytest.param("idle", [*GOOD, load("read", "r", 999)], id="nothing is read to the end"),
        pytest.param("ended", [*GOOD, {"kind": "failed", "who": "p", "why": "?"}], id="a client failed"),
        pytest.param("ended", [*GOOD, found_ended("two", 8)], id="a proxy ended by itself"),
        pytest.param("ended", [*GOOD, found_ended("one", 9)], id="its next life did"),
        pytest.param("alerts", without("watched", 0), id="no rule was evaluated"),
        pytest.param("alerts", without("alert", 0), id="a long fault raised nothing"),
        pytest.param("alerts", changed("alert", 0, begun=HOUR_MS), id="it fired much too late"),
        pytest.param("alerts", changed("alert", 0, part="one"), id="it fired for another part"),
        pytest.param(
            "alerts", [*changed("alert", 0, begun=9_000, ended=11_000), killed(5_000, "job")], id="for a kill"
        ),
        pytest.param("alerts", [*GOOD, fired("WeirJobBehind", 5_000)], id="it fired when all was well"),
        pytest.param("alerts", [*GOOD, fired("WeirJobDown", 2_000_000)], id="long after a fault"),
        pytest.param("alerts", [*GOOD, fired("WeirAdminDown", 90_000)], id="of a part that nothing befell"),
        pytest.param("alerts", [*GOOD, fired("WeirProxyMistake", 90_000)], id="one that may never fire"),
        pytest.param("above", [*GOOD, *(flight(300, 400) for _ in range(2))], id="too many in flight"),
        pytest.param("above", [*GOOD, *(flight(9_300, 9_400) for _ in range(4))], id="while one is away"),
        pytest.param("idle", [one for one in GOOD if one["kind"] != "flight"], id="nothing was in flight"),
        pytest.param("idle", without("held", 0), id="no request ever waited at a broker"),
        pytest.param("leaked", changed("slots", 0, taken=1), id="a slot is taken in the end"),
        pytest.param("leaked", changed("slots", 1, waiting=1), id="a client waits in the end"),
        pytest.param("leaked", without("slots", 1), id="nobody looked"),
        pytest.param("leaked", [*GOOD, expired(90_000)], id="a slot was given back by its deadline"),
        pytest.param("kept", [*GOOD, *kept("hold", 10, 40_000, 9)], id="a record was taken beyond the quota"),
        pytest.param("kept", [*GOOD, *kept("refuse", 10, 40_000, 9)], id="where others are refused, too"),
        pytest.param("kept", without("committed", 3), id="a topic was never beyond its quota"),
        pytest.param("freed", [one for one in GOOD if one not in LATE], id="nothing gets through"),
        pytest.param("freed", [*GOOD, OTHERS], id="one of two producers gets nothing through"),
        pytest.param("outcome", [*GOOD, *kept("hold", 10, 40_000, None, 44)], id="refused instead of held"),
        pytest.param("outcome", changed("sent", 22, code=7), id="nobody was refused"),
        pytest.param("outcome", [*GOOD, WRITTEN], id="one was refused and is there"),
        pytest.param("outcome", [*GOOD, *TOO_SOON], id="one is refused within the quota"),
        pytest.param("undone", [*MINUTES, planned("stop", False)], id="a fault was never done"),
        pytest.param("undone", [*MINUTES, SHORT, planned("stop", True)], id="a short one is no long one"),
    ],
)
def test_each_rule_finds_its_violation(rule: str, entries: list[Entry]) -> None:
    """And each has at least one case here (below)."""
    assert check(History.of(entries))[rule]


def test_a_good_history_breaks_no_rule() -> None:
    """Unanswered requests, refunds, records read again and acknowledged without a place are no violations."""
    assert check(History.of(GOOD)) == {rule: [] for rule in RULES}


def test_every_rule_has_a_case() -> None:
    """A rule that nothing breaks here may find nothing at all."""
    mark = next(mark for mark in test_each_rule_finds_its_violation.pytestmark if mark.name == "parametrize")
    assert {case.values[0] for case in mark.args[1]} == set(RULES)


def back(target: str, took_s: float) -> Entry:
    """A part is there again after a kill."""
    return {"kind": "back", "what": "kill", "target": target, "at": 1500 + 1000 * took_s, "took_s": took_s}


@pytest.mark.parametrize(
    ("doubt", "kill", "wrong"),
    [
        pytest.param({"pid": 7, "at": 1000}, killed(1500), 0, id="killed soon after"),
        pytest.param({"pid": 7, "at": 1000}, killed(1500, "job"), 1, id="it was never killed"),
        pytest.param({"pid": 8, "at": 1000}, killed(1500), 1, id="in doubt in another life"),
        pytest.param({"pid": 7, "at": 1000}, killed(2000 + SOON_MS), 1, id="killed long after"),
        pytest.param({"pid": 7, "at": 1000}, killed(1500, "two"), 1, id="another proxy was killed"),
        pytest.param({"pid": 7, "at": 1000}, killed(1500, "cluster"), 1, id="Kafka was away for a moment"),
        pytest.param({"pid": 7, "at": 1000}, back("cluster", 59.0), 1, id="Kafka was back soon"),
        pytest.param({"pid": 7, "at": 1000}, back("cluster", 61.0), 0, id="Kafka was back late"),
        pytest.param({"pid": 7, "at": 1000}, back("job", 61.0), 1, id="the job was back late"),
        pytest.param({"pid": 7, "at": 1000}, AWAY, 0, id="Kafka was away for long"),
        pytest.param({"pid": 7, "at": -SOON_MS}, AWAY, 1, id="long after it was in doubt"),
    ],
)
def test_what_is_in_doubt_may_be_uncharged(doubt: Entry, kill: Entry, wrong: int) -> None:
    """As many as a proxy had answered before Kafka had their events, when it was killed."""
    others = [entry for entry in without("event", 1) if entry["kind"] != "fault"]
    doubted = History.of([*others, {"kind": "doubt", "part": "one", "count": 1, **doubt}, kill])

    assert len(check(doubted)["charged"]) == wrong


def test_one_doubt_is_forgiven_once() -> None:
    """Not by a kill, and by an outage once more."""
    others = [entry for entry in GOOD if entry["kind"] not in ("event", "fault")]
    doubt = {"kind": "doubt", "part": "one", "pid": 7, "at": 1000, "count": 1}
    twice = [*others, killed(1500), AWAY]

    assert len(check(History.of([*twice, doubt]))["charged"]) == 1
    assert check(History.of([*twice, doubt, doubt]))["charged"] == []


@pytest.mark.parametrize(("epoch", "wrong"), [([7, 1], 0), ([8, 0], 0), ([7, 0], 1)])
def test_what_stands_twice_is_of_two_epochs_of_its_producer(epoch: list[int], wrong: int) -> None:
    """It begins a new one where it cannot know; within one a broker keeps each once, and in order."""
    first = [{**one, "epoch": [7, 0]} if one["kind"] == "record" else one for one in GOOD]
    for number in (3, 4):
        found = check(History.of([*first, {**placed("record", 4, number), "epoch": epoch}]))
        assert (len(found["twice"]), found["lost"]) == (wrong, [])


def broker_back(took_s: float) -> Entry:
    """One that fell with others before it was back."""
    return {"kind": "back", "what": "kill", "target": "kafka", "at": 1000 * (1 + took_s), "took_s": took_s}


@pytest.mark.parametrize(
    ("fault", "wrong"),
    [
        (AWAY, 0), (killed(1500), 1), (killed(-90_000, "cluster"), 1), (broker_back(99.0), 0),
        (broker_back(50.0), 1),
    ],
)  # fmt: skip
def test_what_stood_there_when_all_brokers_fell_may_be_written_again(fault: Entry, wrong: int) -> None:
    """But not be decided again: once is once."""
    (asked,) = (one for one in made("a", 1500) if one["kind"] == "event")
    again = {"kind": "decision", "at": 9000, "decision": {**NOBODY, "subject": WHOSE, "late": True}}

    assert len(check(History.of([*GOOD, asked, fault]))["decided"]) == wrong
    found = check(History.of([*GOOD, asked, again, fault]))
    assert [min(1, len(found[rule])) for rule in ("charged", "decided")] == [1, 1]


@pytest.mark.parametrize("proxy", ["two", "pulsar-proxy"])
def test_a_proxy_without_policies_limits_nobody(proxy: str) -> None:
    """It says so, and Kafka was not whole in the minute and ten seconds, or these, after its start."""
    asked = [{**one, "who": f"m-{proxy}"} for n in range(9) for one in made(f"n{n}", 75_000)]
    many = [*asked, *(flight(75_000, 75_100) for _ in range(9))]
    away, start = {**AWAY, "begun": 7_000, "ended": 9_000}, killed(1_500, proxy)

    def none(at: int, until: int, *faults: Entry) -> list[Entry]:
        said = {"kind": "policies", "part": proxy, "pid": 8, "at": at, "version": 1}
        return [*faults, said, {**said, "at": until, "version": 2}]

    def most(*faults: Entry) -> tuple[bool, bool]:
        found = most_above(History.of([*GOOD, *many, *faults]))
        return found[WHOSE][0] > 1, found["in flight at broker-1"][0] > 1

    assert most(*none(9_000, 76_000, away, start)) == (False, proxy != "two")
    for faults in (
        [away, start], none(9_000, 74_000, away, start), none(9_000, 76_000, start),
        none(76_000, 77_000, away),
        none(9_000, 76_000, {**away, "begun": 72_000, "ended": 80_000}, start),
        none(9_000, 76_000, away, start, killed(74_000, proxy, 8)),
    ):  # fmt: skip
        assert most(*faults)[0]

    # What it let pass was not charged.
    uncharged = [one for one in asked if one["kind"] in ("made", "topic")]
    assert len(check(History.of([*GOOD, *uncharged, away, start]))["charged"]) == 1
    assert check(History.of([*GOOD, *uncharged, *none(9_000, 76_000, away, start)]))["charged"] == []


def test_what_a_proxy_did_not_live_to_give_back_may_be_charged() -> None:
    """Killed, at its end, or since Kafka was away for a minute."""
    stopped = {"kind": "stopped", "part": "one", "at": 9_999}

    assert check(History.of([*GOOD, *LATER, killed(10_000)]))["refused"] == []
    assert check(History.of([*GOOD, *LATER, {**stopped, "at": 11_000}]))["refused"] == []
    assert len(check(History.of([*GOOD, *LATER, stopped]))["refused"]) == 1
    for begun, ended, wrong in ((10_000, 70_000, 0), (10_000, 69_999, 1), (1_000, 69_999, 1)):
        away = {**AWAY, "begun": begun, "ended": ended}
        assert len(check(History.of([*GOOD, *LATER, away]))["refused"]) == wrong


def test_the_time_without_what_a_client_needs_is_not_idle() -> None:
    """Each once, until it is back; who decides at its proxy does not need the job."""
    long = load("made", "strict-one", IDLE_S + 100)
    cut = {"kind": "fault", "what": "cut", "target": "job-broker", "begun": 50_000, "ended": 100_000}
    back = {"kind": "back", "what": "cut", "target": "job-broker", "at": 155_000, "took_s": 55.0}

    def idle(*entries: Entry) -> list[str]:
        return check(History.of([*GOOD, *entries]))["idle"]

    assert idle(long)
    assert idle(long, cut, back) == []
    assert idle(long, cut, cut)
    assert idle({**long, "who": "hurry-one"}, cut, back)
    assert idle(long, {**cut, "target": "cluster"}, {**back, "target": "cluster"}) == []
    assert idle(long, {**cut, "target": "two"}, {**back, "target": "two"})


def test_bounds_follow_how_long_faults_lasted() -> None:
    """A fault that took 20 s instead of 2 lets through what 20 s let through, and no more is forgiven."""
    stop = {"kind": "fault", "what": "stop", "target": "one", "for_s": 2.0, "begun": 0}
    read = [placed("read", 3, 4) for _ in range(9)]

    late = [History.of([*GOOD, *read, {**stop, "ended": ended}]) for ended in (0, 2_000, 20_000)]
    assert [most_above(one)["g"][0] > 1 for one in late] == [True, True, False]


def test_a_group_may_have_twice_as_much_while_something_is_disturbed() -> None:
    """Then and there: all else of the run has to be within the bound."""
    twice = [{**sent(9, 9), "begun": at, "ended": at} for at in range(50_000, 60_000, 500)]

    def most(*faults: Entry) -> float:
        return most_above(History.of([*GOOD, *twice, *faults]))["group"][0]

    calm = most()
    assert calm > 800
    assert most(killed(90_000)) == most({**killed(5_000, "admin"), "ended": 90_000}) == calm
    assert most({**killed(49_000), "ended": 61_000}) < 200


def test_what_holds_nothing_back_widens_no_bound_of_deliveries() -> None:
    """The JVM may stand still, and a part be down, for minutes."""
    read = [placed("read", 3, 4) for _ in range(9)]
    for what, target in (("stop", "jvm"), ("down", "cluster")):
        long = {"kind": "fault", "what": what, "target": target, "for_s": 0.0, "begun": 0, "ended": 280_000}
        assert most_above(History.of([*GOOD, *read, long]))["g"][0] > 1


@pytest.mark.parametrize(("target", "wrong"), [("collect", False), ("admin", True)])
def test_what_a_check_takes_longer_by_troubles_is_forgiven(target: str, wrong: bool) -> None:
    """While nobody checks one record is taken, one refused, one held; of other parts that is no excuse."""
    long = {**killed(5_000, target), "what": "down", "ended": 99_000}
    late = [*GOOD, *kept("hold", 10, 40_000, 9), load("sent", "m", 99), OTHERS, *TOO_SOON, long]

    found = check(History.of(late))
    assert [bool(found[rule]) for rule in ("kept", "freed", "outcome")] == [wrong] * 3


def test_places_of_records_may_have_gaps() -> None:
    """As Pulsar's have between two ledgers: what is there counts."""
    far = [placed("record", 1 << 32, 5), placed("record", 1 << 33, 6)]

    read = [placed("read", 1 << 32, 5), placed("read", 1 << 33, 6)]
    assert check(History.of([*GOOD, *far, *read]))["skipped"] == []
    assert len(check(History.of([*GOOD, *far, *read[1:]]))["skipped"]) == 1


def test_a_connection_may_be_over_before_it_is_seen() -> None:
    """Its request has made room for another one, by then."""
    over = [flight(300, 1_300, over=True), flight(400, 500)]

    assert check(History.of([*GOOD, *over]))["above"] == []


def test_a_crowd_of_clients_is_no_growth() -> None:
    """While it is there; what stays afterwards is."""
    more = [sample(99 + number, 400 << 20, 5_000) for number in range(SAMPLES_MIN)]
    crowd = {"kind": "fault", "what": "crowd", "target": "one", "for_s": 0.0, "begun": 90, "ended": 200}

    assert check(History.of([*GOOD, *more, crowd]))["grown"] == []
    later = [{**one, "at": one["at"] + 10 * SOON_MS} for one in more]
    assert check(History.of([*GOOD, *later, crowd]))["grown"]


def test_only_what_lies_within_a_stretch_counts_for_it() -> None:
    """An answer that took long may have been let through at any time since it was asked for."""
    assert beyond([0, 0, 0, 0], [0, 1000, 2000, 3000], rate=1, burst=1) == 0
    assert beyond([3000] * 4, [3000] * 4, rate=1, burst=1) == 3
    assert beyond([5000, 9000], [5000, 9000], rate=1, burst=1, sizes=[3, 5]) == 4
    assert beyond([], [], rate=1, burst=1) == 0


def test_no_burst_is_missed_among_many_starts() -> None:
    """A stretch that begins a little earlier would hold too much time."""
    at = [*range(0, 30_000_000, 10_000), *[15_005_000] * 5]

    assert beyond(at, at, rate=1, burst=1) == 4


def test_begin_and_end_of_the_load_are_times_too() -> None:
    """What comes after its end, or does not get through, is none."""
    history = History.of([*GOOD, *made("late", 11_000)])

    assert successes(history, load("made", "m-one")) == [0, 0, 1000, 10_000]
    assert successes(history, load("made", "nobody")) == [0, 10_000]


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Names of any form too."""
    file = tmp_path / "history.jsonl"
    entry = {"kind": "topic", "name": "a\nb\u2028\u00e9"}
    with Recorder(file) as told:
        told.note(**entry)

    assert History.read(file)["topic"] == [entry]
