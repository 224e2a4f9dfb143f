"""Whether a history may have been, in Jepsen's manner: each rule says what it has found against it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from soak_alerts import OF, alerts
from soak_backlogs import freed, kept, outcome
from soak_bounds import above, admitted
from soak_calm import SOON_MS, disturbed, limited, outages, proxy_of, requests, within, written_again
from soak_history import Entry, History
from soak_schedule import KILLS, LIMITING, PROXIES, PULSAR, kind_of
from soak_slots import full, leaked

REFUSED = 89
"""THROTTLING_QUOTA_EXCEEDED."""
GROWN_BYTES, GROWN_TIMES = 96 << 20, 1.5
DESCRIPTORS_GROWN = 100
SAMPLES_MIN = 30
"""Of one process, before something is said of its growth."""
IDLE_S = 240.0
"""A client may get nothing for so long while all that it needs is there: one that lags reads every two
minutes."""
DEMANDED_S = 1_800.0
"""A run of that length has each fault several times in its schedule."""

Rule = Callable[[History], Iterator[str]]


def check(history: History) -> dict[str, list[str]]:
    """What each rule has found; all empty: nothing is wrong."""
    return {name: list(rule(history)) for name, rule in RULES.items()}


def lost(history: History) -> Iterator[str]:
    """An acknowledged record is where its producer was told: anywhere, if that was not said (-1)."""
    there = {(one["topic"], one["offset"]): one["value"] for one in history["record"]}
    anywhere = {(one["topic"], one["value"]) for one in history["record"]}
    for one in history["sent"]:
        place = (one["topic"], one["offset"])
        if one["offset"] is None or (one["offset"] < 0 and (one["topic"], one["value"]) in anywhere):
            continue
        if there.get(place) != one["value"]:
            yield f"{one['value']} was acknowledged at {place}, where {there.get(place)} is"


def twice(history: History) -> Iterator[str]:
    """Producers are idempotent: nothing stands twice, and in the order in which it was sent.

    Within a producer's epoch: librdkafka begins a new one where it gave a record up, or where of several
    under way as brokers fell one was written and the next was not; a broker then takes again what it has.
    """
    counts = Counter((one["topic"], one["value"], _epoch(one)) for one in history["record"])
    for (topic, value, _), count in counts.items():
        if count > 1:
            yield f"{value} is {count} times in {topic}"
    newest: dict[tuple[Any, ...], int] = {}
    for one in sorted(history["record"], key=lambda one: (one["topic"], one["offset"])):
        who, _, number = one["value"].rpartition(" ")
        key = one["topic"], who, _epoch(one)
        before = newest.get(key, -1)
        newest[key] = max(before, int(number))
        if int(number) < before:
            yield f"{one['value']} stands behind {before} in {one['topic']}"


def _epoch(record: Entry) -> tuple[int, ...]:
    """The id and epoch of who wrote it, of Kafka's producers."""
    return tuple(record.get("epoch") or ())


def skipped(history: History) -> Iterator[str]:
    """What a consumer reads is what is there, and it passes over none."""
    every: dict[str, dict[int, tuple[int, str]]] = defaultdict(dict)
    for one in sorted(history["record"], key=lambda one: one["offset"]):
        own = every[one["topic"]]
        own[one["offset"]] = len(own), one["value"]
    next_number: dict[tuple[str, str], int] = defaultdict(int)
    for one in history["read"]:
        key, place = (one["group"], one["topic"]), f"{one['topic']} {one['offset']}"
        number, value = every[one["topic"]].get(one["offset"], (-1, ""))
        if value != one["value"]:
            yield f"{one['who']} read {one['value']} at {place}"
        if number > next_number[key]:
            yield f"{one['who']} passed over {number - next_number[key]} before {place}"
        # It may begin again where it had committed, of which nothing is missed.
        next_number[key] = max(next_number[key], number + 1)


def gone(history: History) -> Iterator[str]:
    """A topic that was promised is there, one that was refused is not."""
    there = {one["name"] for one in history["topic"]}
    for one in history["made"]:
        if one["code"] == 0 and one["name"] not in there:
            yield f"{one['name']} was made and is not there"
        if one["code"] == REFUSED and one["name"] in there:
            yield f"{one['name']} was refused and is there"


def charged(history: History) -> Iterator[str]:
    """A topic that was promised is charged once, to whom it is to be; none more often.

    Only those may be missing that met a proxy without policies, or that a proxy answered soon before it was
    killed, or before Kafka was away for longer than events wait (60 s), and as many as it counted then as
    answered before Kafka had their events.
    """
    charges = list(admitted(history))
    counts = Counter(name for name, _, _, _ in charges)
    whose = {one["name"]: one["subject"] for one in history["made"]}
    wrong = [name for name, _, subject, _ in charges if whose.get(name, subject) != subject]
    if wrong:
        yield f"{len(wrong)} were charged to somebody else, or to nobody: {wrong[:9]}"
    uncharged = (one for one in history["made"] if one["code"] == 0 and not counts[one["name"]])
    missing = limited(history, uncharged)
    doubts = [dict(one) for one in history["doubt"]]
    for kill in (*kills(history), *outages(history)):
        since, all_of_them = kill["begun"] - SOON_MS, kill["target"] not in PROXIES
        left = [
            one
            for one in doubts
            if (all_of_them or one["pid"] == kill["pid"]) and since <= one["at"] <= kill["ended"] + SOON_MS
        ]
        before = [one for one in missing if all_of_them or proxy_of(one) == kill["target"]]
        for one in [one for one in before if since <= one["ended"] and one["begun"] <= kill["ended"]]:
            # What is forgiven is used up: another kill or outage does not forgive it again.
            own = (doubt for doubt in left if doubt["count"] and doubt["part"] == proxy_of(one))
            doubt = next(own, None)
            if doubt is not None:
                doubt["count"] -= 1
                missing.remove(one)
    if missing:
        names = [one["name"] for one in missing[:9]]
        yield f"{len(missing)} were made and not charged, and in doubt at no proxy that was killed: {names}"
    yield from (f"{name} was charged {count} times" for name, count in counts.items() if count > 1)


def refused(history: History) -> Iterator[str]:
    """What was refused is not charged, or given back: if its proxy has lived to see the decision.

    And if Kafka was not away then for longer than its event waits (60 s).
    """
    decided_at = {name: at for name, _, _, at in admitted(history)}
    lost = [(one["begun"], one["ended"]) for one in outages(history)]
    for one in history["made"]:
        at = decided_at.get(one["name"])
        if one["code"] != REFUSED or at is None:
            continue
        ends = [(end["begun"], end["ended"]) for end in kills(history) if end["target"] == proxy_of(one)]
        ends += [(end["at"], end["at"]) for end in history["stopped"] if end["part"] == proxy_of(one)]
        ends += [(begun, ended) for begun, ended in lost if ended >= max(begun, at) + SOON_MS]
        if not any(one["begun"] <= ended and begun <= at + SOON_MS for begun, ended in ends):
            yield f"{one['name']} was refused and charged"


def kills(history: History) -> Iterator[Entry]:
    """Those of proxies."""
    return (one for one in history["fault"] if one["what"] in KILLS and one["target"] in PROXIES)


def decided(history: History) -> Iterator[str]:
    """Each request has one decision, however often either was written."""
    again = written_again(history)
    made: dict[str, list[Entry]] = defaultdict(list)
    for one in history["decision"]:
        decision = one["decision"]
        if decision["type"] == "admission" and decision not in made[decision["id"]]:
            made[decision["id"]].append(decision)
    for name, every in made.items():
        if len(every) > 1:
            yield f"{len(every)} decisions of {name}: {every}"
    asked = Counter(event["id"] for event in requests(history))
    for name, count in asked.items():
        if count > again.get(name, 1):
            yield f"{name} was asked {count} times"
    yield from (f"{name} was not decided" for name in asked.keys() - made.keys())
    yield from (f"{name} was decided and not asked" for name in made.keys() - asked.keys())


def replayed(history: History) -> Iterator[str]:
    """The dump gives the decisions that were made."""
    if not history["replay"]:
        yield "nothing was replayed"
    yield from (f"status {one['status']}: {one['said']}" for one in history["replay"] if one["status"])


def away(history: History) -> Iterator[str]:
    """What was killed or cut off is there again."""
    for one in history["back"]:
        if one["took_s"] is None:
            yield f"{one['target']} did not come back after {one['what']}"


def grown(history: History) -> Iterator[str]:
    """No process's memory or descriptors grow, once it is warm, but in a crowd of clients, and soon after."""
    by_process: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    crowds = [(one["begun"], one["ended"] + SOON_MS) for one in history["fault"] if one["what"] == "crowd"]
    for one in history["sample"]:
        if any(begun <= one["at"] <= ended for begun, ended in crowds):
            continue
        by_process[one["part"], one["pid"]].append(one)
    for (part, pid), samples in by_process.items():
        if len(samples) < SAMPLES_MIN:
            continue
        third = len(samples) // 3
        warm, late = samples[third : 2 * third], samples[-third:]
        before, after = (median(one["rss"] for one in some) for some in (warm, late))
        if after > GROWN_TIMES * before and after - before > GROWN_BYTES:
            yield f"{part} ({pid}) grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB"
        before, after = (median(one["descriptors"] for one in some) for some in (warm, late))
        if after > before + DESCRIPTORS_GROWN:
            yield f"{part} ({pid}) had {before:.0f}, then {after:.0f} descriptors"


def left_over(history: History) -> Iterator[str]:
    """Nothing outlives the run."""
    yield from (f"{one['part']} ({one['pid']}) still runs" for one in history["left"])


def ended(history: History) -> Iterator[str]:
    """No client ends by an error, and no proxy, admin API or collector but by a kill: the job may."""
    yield from (f"{one['who']}: {one['why']}" for one in history["failed"])
    killed = {one["pid"] for one in history["fault"] if one["what"] in KILLS}
    for one in history["ended"]:
        if one["part"] in (*LIMITING, "admin", "collect") and one["pid"] not in killed:
            yield f"{one['part']} was not killed: {one['why']}"


def idle(history: History) -> Iterator[str]:
    """Each client gets on with it: a history in which nothing happened would pass every other rule."""
    yield from (f"no {kind}" for kind in ("fault", "load") if not history[kind])
    for kind in ("made", "sent", "read", "held"):
        if not any(map(got_through, history[kind])):
            yield f"no {kind}"
    if not full(history):
        yield "no broker had as many requests in flight as it may"
    for load in history["load"]:
        spans = list(disturbed(history, needed(load["who"]), 0.0))
        left_s = max((b - a - within(spans, a, b)) / 1000 for a, b in pairwise(successes(history, load)))
        if left_s > IDLE_S:
            yield f"{load['who']}: nothing was {load['what']} for {left_s:.0f} s in which all was there"


def needed(who: str) -> tuple[str, ...]:
    """What a client gets nothing without: of those that wait for decisions the job, too."""
    if who.endswith(f"-{PULSAR[1]}"):
        return PULSAR
    proxy = proxy_of({"who": who})
    deciding = OF["job"] if who.startswith("strict-") else ()
    return (*OF["kafka"], *deciding, proxy, f"client-{proxy}", f"broker-{proxy}")


def successes(history: History, load: Entry) -> list[int]:
    """When a client got something, ms, within begin and end of its load and with these."""
    own = [one for one in history[load["what"]] if one["who"] == load["who"] and got_through(one)]
    begun, ended = load["begun"], load["ended"]
    times = (one["at"] if load["what"] == "read" else one["ended"] for one in own)
    return [begun, *sorted(at for at in times if begun <= at <= ended), ended]


def got_through(one: Entry) -> bool:
    """Whether a topic was made, a record acknowledged or read, a request answered."""
    return one.get("offset") is not None if "offset" in one else one["code"] == 0


def undone(history: History) -> Iterator[str]:
    """In a long run each fault that was planned was made once at least, a long one as long."""
    if max(((one["ended"] - one["begun"]) / 1000 for one in history["load"]), default=0) < DEMANDED_S:
        return
    made = set(map(kind_of, history["fault"]))
    for one in history["planned"]:
        if (one["what"], one["target"], one["long"]) not in made:
            yield f"{one['what']} {one['target']} was never done" + one["long"] * " for long"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        lost, twice, skipped, gone, charged, refused, decided, above, replayed, away, grown, left_over, ended,
        idle, undone, leaked, kept, freed, outcome, alerts,
    )
}  # fmt: skip
