"""When something was disturbed, and when all was well."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from soak_history import Entry, History

Span = tuple[float, float]
"""Begin and end, ms."""


def disturbed(history: History, targets: Iterable[str], after_ms: float) -> list[Span]:
    """When one of these was befallen, until it was back and a while after that: in order, none overlaps.

    Args:
        history: what was seen.
        targets: of faults.
        after_ms: for so long what a fault did may be felt.
    """
    those = set(targets)
    found = [(one["begun"], one["ended"]) for one in history["fault"] if one["target"] in those]
    found += [back(one) for one in history["back"] if one["target"] in those]
    # A broker or the job may end by itself, too: that is a fault nobody planned.
    found += [(one["at"], one["at"]) for one in history["ended"] if one["part"].partition("-")[0] in those]
    return list(joined((begun, ended + after_ms) for begun, ended in found))


def back(one: Entry) -> Span:
    """How long a part took to be back; one that never came breaks another rule (`away`)."""
    return one["at"] - 1000 * (one["took_s"] or 0), one["at"]


def joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Times that overlap, as one."""
    newest: Span | None = None
    for begun, ended in sorted(spans):
        if newest is not None and begun <= newest[1]:
            newest = newest[0], max(newest[1], ended)
            continue
        if newest is not None:
            yield newest
        newest = begun, ended
    if newest is not None:
        yield newest


def slowed(at: Sequence[int], spans: Iterable[Span]) -> list[float]:
    """Times, ms, by a clock that goes twice as fast in some spans: there twice as much may come to pass."""
    every = np.asarray(at, dtype=np.float64)
    shown: list[float] = sum((np.clip(every, *span) - span[0] for span in spans), every).tolist()
    return shown


def common_ms(spans: Iterable[Span], begun: float, ended: float) -> float:
    """How much of a time lies in one of them."""
    return sum(max(0.0, min(ended, until) - max(begun, since)) for since, until in spans)
