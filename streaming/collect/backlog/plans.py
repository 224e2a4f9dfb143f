"""Plans that may be carried out: those that the law makes of the collector's own reports."""

from collections.abc import Iterable
from dataclasses import dataclass

from streaming.contract.backlog.actions import QUOTA_TYPES
from streaming.contract.backlog.decisions import BacklogDecision, EvictionPlan, planned_of
from streaming.contract.broker_events import Backlog
from streaming.laws.backlog.law import EVICTION, Rules, judge, rules_for
from streaming.policy.policy_set import PolicySet


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
