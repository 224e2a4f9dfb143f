"""Takes what is refused out of a request, and puts it into the answer, as `rules` says where."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enforcer.kafka.guard.rules import Kind, Rule
from enforcer.wire.kafka.codec import ASKED_MAX
from enforcer.wire.kafka.frames import BadFrame, Fields, Reason

CodeOf = Callable[[Rule, Any], int]
"""(list, entry) -> the error that it is refused with; 0: it may pass."""

_MESSAGES: Mapping[Kind, bytes] = {
    **dict.fromkeys((Kind.TOPICS, Kind.TRANSACTIONS), b"it belongs to Weir (proxy.protect_topics)"),
    Kind.RESOURCES: b"not through the proxy (proxy.protect_topics, proxy.alter_cluster)",
    **dict.fromkeys((Kind.ACLS, Kind.USERS), b"not through the proxy (proxy.alter_cluster)"),
    Kind.QUOTAS: b"not through the proxy (proxy.alter_client_quotas)",
}


class RemovedEntry(NamedTuple):
    """An entry that was taken out.

    Attributes:
        rule: of its list.
        place: its index there.
        key: of the struct that the list stood in.
        entry: itself.
        code: the error.
    """

    rule: Rule
    place: int
    key: Any
    entry: Any
    code: int


def take(body: Fields, rules: Iterable[Rule], code_of: CodeOf) -> tuple[list[RemovedEntry], int]:
    """Take what is refused out of the lists of a request's body.

    Returns:
        What was taken out, and how many entries are left, inner lists not counted but for themselves.

    Raises:
        BadFrame: there is too much of it to be answered.
    """
    taken: list[RemovedEntry] = []
    left = 0
    for rule in rules:
        for holder, field in _holders(body, rule.asked):
            entries = holder.get(field)
            if not entries:
                continue
            kept = []
            for place, entry in enumerate(entries):
                code = code_of(rule, entry)
                if code:
                    taken.append(RemovedEntry(rule, place, holder.get(rule.key), entry, code))
                else:
                    kept.append(entry)
            left += len(kept)
            if len(kept) < len(entries):
                holder[field] = kept
    if sum(len(_numbers(item)) for item in taken if item.rule.parts) > ASKED_MAX:
        raise BadFrame(Reason.TOO_MANY_ITEMS)
    return taken, left


def add(answer: Fields, taken: Sequence[RemovedEntry]) -> None:
    """Put what was refused into an answer's body."""
    by_place = [item for item in taken if item.rule.by_place]
    if by_place:
        said = list(answer.get(by_place[0].rule.said) or ())
        for item in by_place:
            said.insert(item.place, _refusal(item))
        answer[by_place[0].rule.said] = said
        return
    known: dict[Any, Fields] = {}
    for item in taken:
        if item.rule.silent:
            continue
        outer, _, inner = item.rule.said.partition(".")
        holder = _outer(answer, outer, item, known) if inner else answer
        field = inner or outer
        entries = holder.get(field)
        if not isinstance(entries, list):
            entries = list(entries or ())
            holder[field] = entries
        entries.append(_refusal(item))


def name_of(rule: Rule, entry: Any) -> bytes | None:
    """What an entry is called; None if it has no name."""
    if rule.name is None:
        return entry  # type: ignore[no-any-return]  # a list of texts
    return entry.get(rule.name)  # type: ignore[no-any-return]


def _holders(body: Fields, asked: str) -> Iterable[tuple[Fields, str]]:
    outer, _, inner = asked.partition(".")
    if not inner:
        return [(body, outer)]
    return [(holder, inner) for holder in body.get(outer) or ()]


def _outer(answer: Fields, name: str, item: RemovedEntry, known: dict[Any, Fields]) -> Fields:
    """The struct of the answer that speaks of the one that the entry stood in; made if there is none."""
    key = item.rule.key
    if not known:
        answer[name] = list(answer.get(name) or ())
        known.update((holder.get(key), holder) for holder in reversed(answer[name]))
    if item.key not in known:
        known[item.key] = {key: item.key}
        answer[name].append(known[item.key])
    return known[item.key]


def _numbers(item: RemovedEntry) -> Sequence[Any]:
    return item.entry.get(item.rule.parts) or ()


def _refusal(item: RemovedEntry) -> Fields:
    """What the answer says of a refused entry; fields that its version lacks are not written."""
    rule = item.rule
    verdict = {rule.error: item.code, "ErrorMessage": _MESSAGES[rule.kind], **rule.more}
    if rule.kind is Kind.TRANSACTIONS or rule.name is None:
        return {rule.said_name: name_of(rule, item.entry), **verdict}
    who = {field: item.entry[field] for field in rule.copied}
    if not rule.copied:
        who = {rule.said_name: name_of(rule, item.entry)}
        if "TopicId" in item.entry:
            who["TopicId"] = item.entry["TopicId"]
    if rule.parts is None:
        return who | verdict
    field = rule.number
    numbers = (part if field is None else part[field] for part in _numbers(item))
    return who | {rule.said_parts: [{rule.said_index: number, **verdict} for number in numbers]}
