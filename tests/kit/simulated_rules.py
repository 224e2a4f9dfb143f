"""Whether a simulated history may have been, in Jepsen's manner: each rule says what it finds against it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
from law_kit import T0
from simulated_case import END_MS

from enforcer.core.membership import ALIVE_EVERY_MS, UNACKNOWLEDGED_MS
from streaming.contract.names import PROBE_SUFFIX
from streaming.policy.policy_set import Algorithm, Decide, MutationQuota
from streaming.policy.timeline import PolicyTimeline
from weir.simulate.failures.excess import Found
from weir.simulate.failures.mutations import Mutations
from weir.simulate.failures.proxy import LOOK_MS
from weir.simulate.failures.scenario import Facts

Entry = dict[str, Any]
RATE, BURST, _DECIDE, _ALGORITHM, SHADOW = range(5)
"""What stands in the `quota` of what was done."""
ROUNDED = 1e-6
FOUND_OUT_MS = UNACKNOWLEDGED_MS + ALIVE_EVERY_MS + LOOK_MS
IN_FORCE_MS = 2_000
"""A change of policy is in force so long after it was written."""
LATE = ("late_allow", "late_reject")
NEW_MS = 3_000
"""What stands there since then need not be decided in the end."""


class History:
    """The entries of one by what they are, and what is asked of them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.of: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            self.of[entry["what"]].append(entry)
        self.asked = {entry["n"]: entry for entry in self.of["asked"]}
        self.told = {entry["n"]: entry for entry in self.of["told"]}
        self.request = {entry["n"]: entry for entry in self.of["request"]}
        self.events = [orjson.loads(entry["value"]) for entry in self.of["event"]]
        self.decisions = [orjson.loads(entry["value"]) for entry in self.of["decision"]]
        self.fresh = [one for one in self.decisions if not one.get("repeat")]
        self.reset = {entry["n"] for entry in self.of["reset"]}
        self.left = {entry["n"] for entry in self.of["left"]}
        self.done: dict[int, dict[str, int]] = {n: {} for n in self.asked}
        for entry in self.of["done"]:
            self.done[entry["n"]] = entry["items"]
        self.lost = {_whose(orjson.loads(entry["value"])) for entry in self.of["lost"]}
        self.began = {entry["proxy"]: entry["at"] for entry in self.of["start"]}
        self.first = {one["id"]: one for one in reversed(self.fresh)}
        self.charges = self._charges()

    def _charges(self) -> Counter[str]:
        """Id of a request -> what stands charged for it."""
        charges: Counter[str] = Counter()
        for name, one in self.first.items():
            charges[_whose(one)] += one["mutations"] if name else 0
        for event in self.events:
            if event["type"] == "refund":
                charges[event["of"]] -= sum(item["mutations"] for item in event["items"])
        return charges

    def forgotten(self, n: int) -> bool:
        """Whether its proxy was killed before all of it stood on the topics, as is counted or can be seen.

        It was not answered, or before Kafka had its event, or without its decision; or its link held back an
        event of it when it was killed.
        """
        asked, told = self.asked[n], self.told.get(n)
        died = any(asked["proxy"] == one["proxy"] and asked["at"] <= one["at"] for one in self.of["killed"])
        if not died:
            return False
        unsure = told is None or told["doubt"] or told["outcome"] in LATE
        return unsure or (n in self.request and self.request[n]["id"] in self.lost)


def _whose(event: Entry) -> str:
    """The id of the request that an event, or the decision of it, is about."""
    name = event.get("of", event["id"])
    return name.removesuffix("-late").removesuffix("-sum")


def counted(history: History) -> Iterator[str]:
    """What the cluster made is charged exactly once, and nothing else is, or it can be counted as not."""
    for n, request in history.request.items():
        if not request["subject"] or request["shadow"] or history.forgotten(n):
            continue
        charged, done = history.charges[request["id"]], sum(history.done[n].values())
        if charged != done:
            yield f"{request['id']}: {done} were made and {charged} are charged"


def decided(history: History) -> Iterator[str]:
    """Each event that stands is decided, and once; what is said again is said word for word."""
    texts = defaultdict(set)
    for entry, decision in zip(history.of["decision"], history.decisions, strict=True):
        if not decision.get("repeat"):
            texts[decision["id"]].add(entry["value"])
    events = Counter(event["id"] for event in history.events)
    yield from (f"{name} stands there {count} times" for name, count in events.items() if count > 1)
    for entry, event in zip(history.of["event"], history.events, strict=True):
        if event["type"] == "request" and event["id"] not in texts and entry["at"] < END_MS - NEW_MS:
            yield f"{event['id']} was not decided"
    yield from (f"{name} was decided in {len(said)} ways" for name, said in texts.items() if len(said) > 1)
    yield from (f"{name} was decided and never asked" for name in sorted(texts.keys() - events.keys()))
    yield from (f"dead letter: {entry['value']}" for entry in history.of["buried"])
    yield from (entry["why"] for entry in history.of["again"])


def answered(history: History) -> Iterator[str]:
    """What is refused is not made, nor anything for who has left; a client is told what was made."""
    for n, asked in history.asked.items():
        done, told = history.done[n], history.told.get(n)
        if n in history.left and done:
            yield f"{n} had left, and {done} were made"
        request = history.request.get(n, {"id": "", "shadow": True})
        decision = history.first.get(request["id"], {"rejected": ()})
        refused = done.keys() & set(decision["rejected"])
        if refused and not (request["shadow"] or "late" in decision or (told or {}).get("outcome") in LATE):
            yield f"{request['id']} had {sorted(refused)} refused, which were made"
        if told is None or asked["dry"]:
            continue
        expected = asked["items"].keys() - set(told["rejected"]) - set(asked["fails"])
        if done.keys() != expected:
            yield f"{n} was told {told['outcome']}, and {sorted(done)} were made, not {sorted(expected)}"


def above(history: History) -> Iterator[str]:
    """No more than the limit and its bound passes in any stretch of time (docs/laws.md).

    What is forgotten with a proxy that is killed, nobody can pay off; and a subject begins afresh under a
    quota that it did not have before, or by another algorithm.
    """
    passes = [one for one in history.of["done"] if one["quota"] is not None and not one["quota"][SHADOW]]
    stretches: dict[int, list[Entry]] = defaultdict(list)
    afresh = list(_afresh(history))
    for one in passes:
        stretches[sum(at <= one["at"] for at in afresh)].append(one)
    forgotten = sum(
        max(0, sum(one["items"].values()) - history.charges[history.request[one["n"]]["id"]])
        for one in passes
        if one["n"] in history.request and history.forgotten(one["n"])
    )
    for stretch in stretches.values():
        passed = Mutations((), Found(0), PolicyTimeline())
        for one in stretch:
            strict, mutations = history.asked[one["n"]]["strict"], sum(one["items"].values())
            passed.passed(one["at"] + T0, _quota(one["quota"]), mutations, strict=strict)
        found = passed.found[""]
        found.limit, found.burst = (max(one["quota"][which] for one in passes) for which in (RATE, BURST))
        bound = passed.bound("", facts(history)) + forgotten
        if facts(history).proxies == 1:
            # It learns the brokers' time from acknowledgements: when these are quicker it has been late.
            bound += found.limit * facts(history).late_s
        if found.over > bound + ROUNDED:
            yield f"{found.over:.3f} above the limit, where {bound:.3f} may be"


def _afresh(history: History) -> Iterator[int]:
    """When a subject begins afresh."""
    before = history.of["begin"][0]["quota"].get("algorithm")
    for fault in history.of["fault"]:
        if fault["fault"] == "policy":
            now = "none" if fault["how"] is None else fault["how"].get("algorithm")
            if now != before:
                yield fault["at"] + IN_FORCE_MS
            before = now


def _quota(terms: Sequence[Any]) -> MutationQuota:
    rate, burst, decide, algorithm, shadow = terms
    return MutationQuota(
        subject="", path="", level=1, rate=rate, burst=burst, shadow=shadow,
        algorithm=Algorithm(algorithm), decide=Decide(decide) if decide else None,
    )  # fmt: skip


def stops(history: History) -> Iterator[str]:
    """A proxy of several that is cut off for long admits nothing by itself (docs/laws.md)."""
    begin = history.of["begin"][0]
    if len(begin["links"]) == 1:
        return
    user = history.of["start"][0]["proxy"].partition(".")[0]
    for cut in history.of["fault"]:
        targets = range(len(begin["links"])) if cut["target"] < 0 else [cut["target"]]
        names = {f"{user}.p{number}" for number in targets}
        since, until = T0 + cut["at"] + FOUND_OUT_MS, T0 + cut["at"] + cut["for_ms"]
        for event in history.events if cut["fault"] == "cut" else ():
            answers = event.get("strict") and "decided" in event and not event["validate_only"]
            if not answers or event["proxy"] not in names or not since < event["ts"] < until:
                continue
            if len(event["decided"]["rejected"]) < len(event["items"]):
                yield f"{event['id']} was admitted by one that was cut off"


def facts(history: History) -> Facts:
    """What the bound of a history depends on."""
    (begin,) = history.of["begin"]
    faults = history.of["fault"]
    up, down = (max(link[way] for link in begin["links"]) for way in range(2))
    late = max((one["how"] for one in begin["job"] if one["fault"] == "late"), default=0)
    slow = sum(one["how"] for one in faults if one["fault"] == "slow")
    still = sum(one["for_ms"] for one in faults if one["fault"] == "stop")
    away = [one["for_ms"] for one in begin["job"] if one["fault"] == "die"]
    cut = sum(one["for_ms"] for one in faults if one["fault"] == "cut")
    return Facts(
        proxies=len(begin["links"]) + sum(one["fault"] == "join" for one in faults),
        late_s=(up + begin["batch_ms"] + down + late + 2 * slow + still) / 1000,
        cut_s=cut / 1000, away_s=sum(away) / 1000, joins=False,
    )  # fmt: skip


def replayed(history: History) -> Iterator[str]:
    """A replay of the log gives the same decisions, word for word.

    Its subjects are those of the policies in force when an event stood there, the job's are those that the
    proxy went by when it sent it (docs/contract.md 3.1): where a quota came or went between, they differ.
    """
    (replay,) = history.of["replay"]
    if any(map(bool, _stamped_otherwise(history))):
        return
    said: dict[str, str] = {}
    for entry, decision in zip(history.of["decision"], history.decisions, strict=True):
        if not decision.get("repeat"):
            said.setdefault(decision["id"], entry["value"])
    for name, text in said.items():
        if text != replay["said"].get(name):
            yield f"{name}: {text} was said, and {replay['said'].get(name)} in the replay"


def _stamped_otherwise(history: History) -> Iterator[bool]:
    changes = [one for one in history.of["fault"] if one["fault"] == "policy"]
    for entry, event in zip(history.of["event"], history.events, strict=True):
        at = event.get("ts", entry["at"] + T0) - T0
        newest = [one["how"] for one in changes if one["at"] + IN_FORCE_MS <= at][-1:]
        limits = newest != [None] and not event["id"].endswith(PROBE_SUFFIX)
        yield limits != bool(event["subject"])


def waiting(history: History) -> Iterator[str]:
    """Long after all faults nobody waits any more but for its quota, and no proxy for anything."""
    waits = {entry["n"] for entry in history.of["waits"]}
    for n in history.asked.keys() - history.told.keys() - history.left - history.reset - waits:
        yield f"{n} was never answered"
    removed = any(one["fault"] == "policy" and one["how"] is None for one in history.of["fault"])
    asked = {event["id"] for event in history.events if event["type"] == "request"}
    said_ms = max((entry["at"] for entry in history.of["decision"]), default=0) - NEW_MS
    sent = {entry["proxy"]: set[str]() for entry in history.of["left_over"]}
    for n, request in history.request.items():
        asker = history.asked[n]
        if asker["proxy"] in sent and asker["at"] > history.began[asker["proxy"]]:
            sent[asker["proxy"]].add(request["id"])
    stand = dict(zip((event["id"] for event in history.events), history.of["event"], strict=True))
    for entry in history.of["left_over"]:
        for what in ("pending", "late", "unacknowledged", "questions", "tail"):
            # A probe may have been sent just now.
            left = [one for one in entry[what] if not one.endswith(PROBE_SUFFIX) or one in stand]
            left = [one for one in left if one not in stand or stand[one]["at"] < END_MS - NEW_MS]
            if what == "tail":
                # What was given back leaves with the next admission; of a quota that is gone nothing is said.
                left = [one for one in left if one in asked or (said_ms > stand[one]["at"] and not removed)]
                left = [one for one in left if not removed or one in sent[entry["proxy"]]]
            if left:
                yield f"{entry['proxy']} has {what} {left}"


def agreed(history: History) -> Iterator[str]:
    """In the end each proxy knows of the subject what was decided last."""
    said = zip(reversed(history.of["decision"]), reversed(history.decisions), strict=True)
    when, last = next(((entry["at"], one) for entry, one in said if one["subject"]), (0, None))
    if last is None or last.get("tokens") is None or when > END_MS - NEW_MS:
        return
    for entry in history.of["left_over"]:
        at, tokens = last.get("applied_ts", last["ts"]) - T0, last["tokens"]
        known = (entry["stated_at"], entry["tokens"])
        # A full bucket is known without its balance, or not at all.
        if known != (at, tokens) and entry["tokens"] is not None:
            yield f"{entry['proxy']} knows {known}, where {(at, tokens)} was decided"
        elif entry["tokens"] is None and tokens < 0:
            yield f"{entry['proxy']} knows of no debt, where {tokens} was decided"


def back(history: History) -> Iterator[str]:
    """Long after all faults every proxy is open, and what it is asked is decided in time."""
    yield from (f"{one['proxy']} is not open" for one in history.of["left_over"] if not one["open"])
    for n, asked in history.asked.items():
        if asked.get("last") and history.told.get(n, {"outcome": LATE[0]})["outcome"] in LATE:
            yield f"the last question to {asked['proxy']} was not decided in time"


RULES: dict[str, Callable[[History], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (counted, decided, answered, above, stops, replayed, waiting, agreed, back)
}


def check(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """What each rule has found."""
    history = History(entries)
    return {name: list(rule(history)) for name, rule in RULES.items()}
