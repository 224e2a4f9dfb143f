"""The reports of the newest checks, and plans that may be carried out: those that the law makes of these."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streaming.contract.backlog.actions import QUOTA_TYPES
from streaming.contract.backlog.decisions import BacklogDecision, EvictionPlan, planned_of
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import EVICTION, Rules, judge, rules_for
from streaming.policy.policy_set import PolicySet


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A decision with something to evict.

    Attributes:
        decision: as it was read.
        report: that it is on.
        round: number of its check.
        rules: that were in force when it was read.
        agreed: types of quota of which the decision states the limit that was in force then; of others
            nothing is carried out.
    """

    decision: BacklogDecision
    report: Backlog
    round: int
    rules: Rules
    agreed: frozenset[str]

    def stands(self, planned: EvictionPlan, policies: PolicySet) -> bool:
        """Whether the policies ask for a line of it, now as when it was read."""
        return planned.quota_type in self.agreed and rules_for(policies, self.report.topic) == self.rules


def plan_of(decision: BacklogDecision, report: Backlog, round: int, policies: PolicySet) -> Plan | None:
    """The plan of a decision; None: the law makes another one of that report, under these policies.

    A decision comes from a topic that others may write to, and is made of a report that others may have sent
    under the same id; what the law says of the report that we sent ourselves is not in their hands.
    """
    rules = rules_for(policies, report.topic)
    quotas = {"size": rules.size, "time": rules.age}
    stated = {"size": decision.limit_size, "time": decision.limit_time}
    agreed = frozenset(
        one for one in QUOTA_TYPES if quotas[one].policy == EVICTION and quotas[one].limit == stated[one]
    )
    law = _of(map(planned_of, judge(report, rules)["evict"]), agreed)
    said = _of(decision.evict, agreed)
    if len(law) != len(said) or set(law) != set(said):
        return None
    return Plan(decision=decision, report=report, round=round, rules=rules, agreed=agreed)


def _of(lines: Iterable[EvictionPlan], quota_types: frozenset[str]) -> list[EvictionPlan]:
    return [line for line in lines if line.quota_type in quota_types]
