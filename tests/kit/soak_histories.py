"""Histories of the soak that are made up: a good one, and what others differ in (tests/soak)."""

from copy import deepcopy
from typing import Any

from soak_checks import SAMPLES_MIN
from soak_history import Entry
from soak_schedule import LIMITING, LONG

WHOSE = "user=ANONYMOUS,client-id=a"
HOUR_MS = 3_600_000


def made(name: str, at: int, code: int | None = 0) -> list[Entry]:
    """A topic that was asked for, and what Weir's topics and the broker have of it."""
    asked = {"type": "request", "id": f"r-{name}", "items": [{"name": name, "mutations": 1}]}
    refused = code == 89
    decision = {
        "type": "admission", "id": f"r-{name}", "ts": at, "subject": WHOSE, "mutations": int(not refused),
        "rejected": [name] if refused else [],
    }  # fmt: skip
    return [
        {
            "kind": "made", "subject": WHOSE, "name": name, "who": "m-one", "begun": at, "ended": at,
            "code": code,
        },
        {"kind": "event", "event": asked},
        {"kind": "decision", "decision": decision, "at": at},
        *([] if refused else [{"kind": "topic", "name": name}]),
    ]  # fmt: skip


def sent(number: int, offset: int | None) -> Entry:
    """A record that was acknowledged, or not."""
    return {
        "kind": "sent", "who": "p", "topic": "t", "value": f"p {number}", "size": 100,
        "begun": 1000 * number, "ended": 1000 * number, "offset": offset, "code": 0,
    }  # fmt: skip


def placed(kind: str, offset: int, number: int) -> Entry:
    """A record where it stands, or is read."""
    return {
        "kind": kind, "topic": "t", "offset": offset, "value": f"p {number}", "who": "r", "group": "g",
        "at": 1000 * number,
    }  # fmt: skip


def limit(law: str, subject: str) -> Entry:
    """One a second, one more at once, and one beyond that."""
    return {"kind": "limit", "law": law, "subject": subject, "rate": 1, "burst": 1, "bound": 1}


def load(what: str, who: str, seconds: float = 10) -> Entry:
    """What a client wants all the time."""
    return {"kind": "load", "what": what, "who": who, "begun": 0, "ended": round(1000 * seconds)}


def killed(begun: int, target: str = "one", pid: int = 7) -> Entry:
    """A part is killed."""
    return {
        "kind": "fault", "what": "kill", "target": target, "for_s": 0.0, "begun": begun, "ended": begun,
        "pid": pid,
    }  # fmt: skip


def found_ended(part: str, pid: int) -> Entry:
    """A part is no more."""
    return {"kind": "ended", "part": part, "pid": pid, "at": 9000, "why": "status 1"}


def down(begun: int, for_s: float = LONG["down", "job"]) -> Entry:
    """The job, for a while: bounds are of another time than that."""
    return {**killed(begun, "job", 5), "what": "down", "for_s": for_s}


def fired(name: str, at: int, part: str = "job") -> Entry:
    """An alert, for half a minute."""
    return {
        "kind": "alert", "name": name, "part": part, "severity": "info", "begun": at, "ended": at + 30_000
    }


def sample(number: int, rss: int, descriptors: int = 10) -> Entry:
    """What a process takes."""
    return {"kind": "sample", "part": "one", "pid": 7, "at": number, "rss": rss, "descriptors": descriptors}


def flight(begun: int, ended: int, over: bool = False) -> Entry:
    """A request at a broker."""
    return {"kind": "flight", "broker": "broker-1", "begun": begun, "ended": ended, "over": over}


def kept(policy: str, number: int, at: int, offset: int | None, code: int = 0) -> list[Entry]:
    """A record for a topic with a quota of 3,000 bytes, and where it stands."""
    topic, value = f"k-{policy}", f"{policy}-one {number}"
    asked = {
        "kind": "sent", "who": f"{policy}-one", "topic": topic, "value": value, "size": 400, "begun": at,
        "ended": at, "offset": offset, "code": code,
    }  # fmt: skip
    stands = {"kind": "record", "topic": topic, "offset": offset, "value": value}
    return [asked, *([] if offset is None else [stands])]


def backlog(policy: str, ts: int, at: int, exceeded: bool = True) -> Entry:
    """A decision that a topic is beyond its quota, or not."""
    topic = f"persistent://a/b/k-{policy}"
    said = {"type": "backlog", "topic": topic, "ts": ts, "exceeded": ["destination_storage"] * exceeded}
    return {"kind": "decision", "decision": said, "at": at}


def share(at: int, limits: float | None = 1.0) -> Entry:
    """A decision that a proxy has a share, or none any more."""
    said = {"type": "share", "group": "group", "broker": "one", "limits": limits}
    return {"kind": "decision", "decision": said, "at": at}


def lagging(policy: str) -> list[Entry]:
    """A consumer that stands still for a minute: beyond the quota from 3 s on, which is known 20 s later."""
    group, topic = f"lag-{policy}", f"k-{policy}"
    quota = {"topic": topic, "group": group, "policy": policy, "bytes": 3_000, "bound_s": 10}
    stands = [
        {"kind": "committed", "group": group, "topic": topic, "offset": offset, "begun": at, "ended": at}
        for offset, at in ((0, 0), (8, 60_000))
    ]
    written = [each for number in range(8) for each in kept(policy, number, 1_250 + 250 * number, number)]
    refused = kept(policy, 8, 40_000, None, 44) if policy == "refuse" else []
    every = [*stands, *written, *refused, *kept(policy, 9, 62_000, 8), backlog(policy, -19_000, 5_000, False)]
    return [{"kind": "quota", **quota}, *every, load("sent", f"{policy}-one", 100)]


GOOD: list[Entry] = [
    *made("a", 0), *made("b", 1000), *made("c", 2000, 89), *made("unanswered", 5000, None),
    {"kind": "event", "event": {"type": "refund", "id": "back", "of": "r-unanswered"}},
    *(sent(number, number) for number in range(3)), sent(3, None), sent(4, -1),
    *(placed("record", number, number) for number in range(3)), placed("record", 3, 4),
    *(placed("read", number, number) for number in (0, 1, 0, 1, 2)), placed("read", 3, 4),
    limit("mutation", WHOSE), {**limit("shares", "group"), "rate": 100, "burst": 100, "topics": ["t"]},
    limit("dispatch", "g"), *lagging("hold"), *lagging("refuse"), limit("concurrency", "broker-1"),
    flight(100, 200), flight(200, 900), flight(150, 250), flight(700, 800, over=True),
    {"kind": "held", "who": "h", "begun": 100, "ended": 200, "code": 0},
    *({"kind": "slots", "part": name, "taken": 0, "waiting": 0} for name in LIMITING),
    {"kind": "fault", "what": "cut", "target": "client-two", "for_s": 0.5, "begun": 3000, "ended": 3500},
    killed(9000), found_ended("one", 7), found_ended("job", 8), load("made", "m-one"), load("sent", "p"),
    load("read", "r"), {"kind": "planned", "what": "cut", "target": "client-two", "long": False},
    {"kind": "back", "what": "kill", "target": "one", "at": 12_000, "took_s": 3.0},
    *(sample(number, 100 << 20) for number in range(SAMPLES_MIN)),
    {"kind": "replay", "status": 0, "said": ""},
    {"kind": "watched", "begun": 0, "ended": HOUR_MS}, down(10_000),
    fired("WeirJobDown", 70_000), fired("WeirJobRestarts", 400_000), fired("WeirEntityThrottled", 100),
]  # fmt: skip


def changed(kind: str, number: int, **fields: Any) -> list[Entry]:
    """The good history with one entry of a kind changed."""
    every = deepcopy(GOOD)
    [entry for entry in every if entry["kind"] == kind][number].update(fields)
    return every


def without(kind: str, number: int) -> list[Entry]:
    """The good history less one entry of a kind."""
    gone = [entry for entry in GOOD if entry["kind"] == kind][number]
    return [entry for entry in GOOD if entry is not gone]


AWAY = {**killed(1500, "cluster"), "what": "down"}
"""All brokers, for long."""
