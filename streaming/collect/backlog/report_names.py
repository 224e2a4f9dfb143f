"""The reports of the newest checks, which decisions are made of, by their ids."""

import re
from collections.abc import Sequence
from dataclasses import replace

from streaming.contract.broker_events import Backlog


class ReportNames:
    """Names reports, and finds them again.

    Args:
        name: of the run: no other has the same.
        rounds_kept: checks whose reports are kept.
    """

    def __init__(self, name: str, rounds_kept: int) -> None:
        self._prefix, self._kept = f"{name}-", rounds_kept
        # A number of more digits was not named by us.
        self._form = re.compile(rf"{re.escape(self._prefix)}([0-9]{{1,18}})\.([0-9]{{1,18}})")
        self._rounds: dict[int, Sequence[Backlog]] = {}
        self.round = 0

    def named(self, reports: Sequence[Backlog]) -> list[Backlog]:
        """The reports of a new check, with ids.

        >>> sent = ReportNames("c", 1)
        >>> report = Backlog(id="", ts=1, at=1, broker="", topic="t", ledgers=(), subscriptions=())
        >>> [one.id for one in sent.named([report, report])]
        ['c-1.0', 'c-1.1']
        >>> sent.place("c-1.1"), sent.place("other-1.1")
        ((1, 1), None)
        """
        self.round += 1
        found = [replace(one, id=f"{self._prefix}{self.round}.{k}") for k, one in enumerate(reports)]
        self._rounds[self.round] = found
        for old in [number for number in self._rounds if number <= self.round - self._kept]:
            del self._rounds[old]
        return found

    def place(self, id: str) -> tuple[int, int] | None:
        """Number of the check and of the report in it; None: no report of this run has this id."""
        found = self._form.fullmatch(id)
        return None if found is None else (int(found[1]), int(found[2]))

    def report(self, round: int, k: int) -> Backlog | None:
        """A report of a check that is still kept; None: it is not."""
        reports = self._rounds.get(round, ())
        return reports[k] if k < len(reports) else None

    def keeps(self, round: int) -> bool:
        """Whether the reports of a check are still kept."""
        return round in self._rounds
