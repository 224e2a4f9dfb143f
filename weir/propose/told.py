"""A proposal as a policy file: above each entry what was seen, and what it would have done to that log."""

import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from streaming.contract.names import QUOTA_GROUP_PREFIX
from streaming.contract.printable import printable
from streaming.policy.files import policy_file
from weir.logs.times import moment
from weir.plan.comparison import Row
from weir.plan.shown.words import duration
from weir.plan.sides import Plan
from weir.plan.verdicts import REFUSED, THROTTLED
from weir.propose.demand import HOUR_MS, MINUTE_MS, ROUND_TRIP
from weir.propose.proposal import Note
from weir.propose.run import Proposed
from weir.propose.usual import FAR, PEAK

_WIDTH: Final = 108
_NAMES: Final = 3
_NAME_MAX: Final = 200
"""Characters of a name that are shown."""
_ASKED: Final = {
    "mutation": "requests", "shares": "reports", "dispatch": "deliveries", "concurrency": "samples",
    "backlog": "reports",
}  # fmt: skip
_WORDS: Final = {
    "publishRateInMsgs": "messages published a second", "publishRateInBytes": "bytes published a second",
    "dispatchRateInMsgs": "messages delivered a second", "dispatchRateInBytes": "bytes delivered a second",
}  # fmt: skip
_NS_PER_MS: Final = 1e6
_NOBODY: Final = "On this log nobody goes by it."
_AFTER: Final = 1
"""The proposal's side of a plan."""


def policies_of(proposed: Proposed) -> str:
    """The file: entries by name, the defaults of a section first."""
    proposal = proposed.proposal
    paths = sorted(proposal.entries, key=lambda path: ("<default>" not in path, path))
    tried = _tried(proposed.plan, proposal.entries)
    # What was taken over says nothing of itself.
    said = {
        path: [*map(_seen, notes), *(tried[path] or [_NOBODY])] if (notes := proposal.notes.get(path)) else []
        for path in paths
    }
    comments = {path: [line for text in texts for line in _wrapped(text)] for path, texts in said.items()}
    first, last = (moment(at, "m") for at in proposed.span)
    head = (
        f"Proposed by weir propose --headroom {proposal.headroom:g} from {proposed.events:,} events,"
        f" {first} to {last}. A limit is the headroom times the"
        f" p{PEAK} of the windows that its comment names, of whoever asks most under it; a burst is what lets"
        f" all of that through, with the headroom. Hours of more than {FAR:g} times what is usual were left"
        " out. What each entry would have done to these events stands beside it. See docs/plan.md."
    )
    lines = [f"# {line}\n" for line in _wrapped(head)]
    return "".join(lines) + policy_file({path: proposal.entries[path] for path in paths}, comments)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(printable(text), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _seen(note: Note) -> str:
    """What stands behind a limit."""
    seen, shown = note.seen, [_shown(name) for name in note.names]
    measure = _WORDS.get(note.measure, note.measure)
    whose = f"{shown[0]}:" if note.count == 1 else f"{note.count:,} {note.of}, {_few(shown)}:"
    p50, p99, worst = (_amount(note.measure, value) for value in seen[:3])
    who = "" if note.count == 1 else f"{_shown(seen.who)}, "
    text = (
        f"{whose} {measure} in {_window(note.window_ms)}: p50 {p50}, p99 {p99}, worst {worst}"
        f" ({who}{moment(seen.at, 'm')})."
    )
    if note.far:
        left = [f"{_shown(name)} ({far.times:,.0f} times at {moment(far.at, 'm')})" for name, far in note.far]
        text += f" Left out as far from usual: {_few(left)}."
    return text


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _shown(name: str) -> str:
    """Users as mutations name them; what is very long is cut."""
    shown = name.removeprefix(QUOTA_GROUP_PREFIX).removeprefix("user=")
    return shown if len(shown) <= _NAME_MAX else f"{shown[:_NAME_MAX]}..."


def _window(window_ms: int) -> str:
    if window_ms == HOUR_MS:
        return "an hour"
    return f"{window_ms // MINUTE_MS} min" if window_ms > MINUTE_MS else f"{window_ms // 1000} s"


def _amount(measure: str, value: float) -> str:
    if measure == ROUND_TRIP:
        return f"{value / _NS_PER_MS:,.3g} ms"
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _tried(plan: Plan, entries: Iterable[str]) -> Mapping[str, list[str]]:
    """By entry and law, what it would have done to the log, as recorded and if clients wait."""
    known = frozenset(entries)
    by_entry: dict[tuple[str, str], list[tuple[Row, Row]]] = defaultdict(list)
    for row in plan.rows:
        waiting = plan.waiting_rows.get((row.law, row.whose), row)
        for path in {_entry(each, known) for each in row.entries[_AFTER]}:
            by_entry[path, row.law].append((row, waiting))
    told: dict[str, list[str]] = defaultdict(list)
    for (path, law), rows in sorted(by_entry.items()):
        recorded, waits = [row for row, _ in rows], [row for _, row in rows]
        asked = sum(int(row.counts.outcomes[_AFTER].sum()) for row in recorded)
        done, then = _done(recorded), _done(waits)
        both = "whether clients wait or not" if then == done else f"if clients wait and try again: {then}"
        told[path].append(f"On this log, of {asked:,} {_ASKED[law]}: {done}; {both}.")
    return told


def _entry(path: str, known: frozenset[str]) -> str:
    """The entry that a limit stands in."""
    while path not in known and path:
        path = path.rpartition(".")[0]
    return path


def _done(rows: Sequence[Row]) -> str:
    """Who was refused and delayed how often, and who most of it."""
    refused, throttled = (_counts(rows, outcome) for outcome in (REFUSED, THROTTLED))
    if not sum(refused) + sum(throttled):
        return "none refused or delayed"
    worst = max(range(len(rows)), key=lambda n: (refused[n], throttled[n], rows[n].whose))
    longest = duration(max(row.delay_ms[_AFTER]["max"] for row in rows))
    text = f"{sum(refused):,} refused, {sum(throttled):,} delayed, {longest} at most"
    if len(rows) > 1:
        text += f" (most of it {_shown(rows[worst].whose)}: {refused[worst]:,} and {throttled[worst]:,})"
    return text


def _counts(rows: Sequence[Row], outcome: int) -> list[int]:
    return [int(row.counts.outcomes[_AFTER][outcome]) for row in rows]
