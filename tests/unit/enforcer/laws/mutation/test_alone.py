"""A proxy that is alone decides exactly as the job, to the last bit, whatever the job does meanwhile."""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from law_kit import Event, Shard, policy, quota, refund, request
from mutation_kit import SUBJECT, own_of, quota_of, statement_of
from property_kit import tries

from enforcer.laws.mutation.local_decisions import LocalDecisions
from streaming.policy.policy_set import Algorithm, Mode
from streaming.policy.timeline import PolicyTimeline

INITIAL: dict[str, Any] = {"quotas[user=alice]": quota(2, 22)}
QUOTAS = st.sampled_from(
    [
        None,
        quota(1),
        quota(0.3, 2),
        quota(50, 10),
        quota(2, 500),
        quota(2, 22, shadow=True),
        quota(5, 40, algorithm="sampled_rate"),
        # Of 5 s and 60 s after the start.
        quota(1) | {"raise": {"controller_mutation_burst": 90, "until": "2026-11-20T09:25:05Z"}},
        quota(9, 50) | {"raise": {"controller_mutation_rate": 0.1, "until": "2026-11-20T10:26:00+01:00"}},
    ]
)
PATHS = st.sampled_from(["quotas[user=alice]"] * 3 + ["quotas[user=<default>]", "quotas[user=bob]"])
GAPS = st.sampled_from([0, 0, 1, 1, 7, 7, 40, 40, 333, 333, 400, 999, 1000, 2000, 12_000, 70_000])
"""Mostly short, so that balances are rarely full."""
KINDS = ["request"] * 12 + ["refund"] * 2 + ["policy"] * 2 + ["mode"] + ["job"] * 4
KINDS += ["read"] * 4 + ["again"] * 3
STEPS = {
    "request": st.tuples(
        st.lists(st.integers(0, 8), max_size=3),
        st.sampled_from([True, True, True, False]),
        st.sampled_from([True, False, False, False, False]),
    ),
    "refund": st.tuples(st.integers(0, 9)),
    "policy": st.tuples(PATHS, QUOTAS),
    "mode": st.tuples(st.sampled_from([None, *Mode])),
    "job": st.just(()),
    "read": st.tuples(st.integers(1, 12)),
    "again": st.tuples(st.integers(1, 12), st.integers(1, 12)),
}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, str, tuple[Any, ...]]]:
    """How much time passes, and what happens then."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=30, max_size=60))
    return [(draw(GAPS), kind, draw(STEPS[kind])) for kind in kinds]


class Alone:
    """One proxy, the topics, and the job.

    Args:
        tail_max: bound of the proxy's tail.
    """

    def __init__(self, tail_max: int = 100_000) -> None:
        self.timeline = PolicyTimeline(INITIAL)
        self.local = LocalDecisions(self.timeline, subjects_max=100, tail_max=tail_max)
        self.shard = Shard(INITIAL, replay=False)
        self.now = 0
        self.count = 0
        self.topic: list[Event] = []
        self.written: deque[dict[str, Any]] = deque()
        self.read: list[dict[str, Any]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.admissions: dict[str, dict[str, Any]] = {}

    def take(self, gap: int, kind: str, about: tuple[Any, ...]) -> None:
        """Let time pass and one thing happen."""
        self.now += gap
        self.count += 1
        getattr(self, f"_{kind}")(*about)

    def _request(self, counts: list[int], strict: bool, dry: bool) -> None:
        event = request(
            f"e{self.count}", self.now, *counts, subject=SUBJECT, strict=strict, validate_only=dry
        )
        own = own_of(event)
        limit = quota_of(self.timeline, event["ts"])
        if limit is None:
            event["subject"] = ""
        elif limit.shadow or limit.algorithm != Algorithm.TOKEN_BUCKET:
            self.local.asked(*own)
        else:
            answer = self.local.decide(limit, *own)
            assert answer is not None and not self.local.counts.between and answer.ts == event["ts"]
            self.answers[event["id"]] = event["decided"] = answer.decided()
        self.topic.append(event)

    def _refund(self, mutations: int) -> None:
        event = refund(self.now, self.now, mutations) | {"id": f"e{self.count}", "subject": SUBJECT}
        assert self.local.refunded(SUBJECT, event["id"], event["ts"], mutations) == event["ts"]
        self.topic.append(event)

    def _policy(self, path: str, value: Any) -> None:
        event = policy(self.now + 2_000, path, value)
        self.timeline.apply(path, value, event["ts"])
        self.local.policies_changed(event["ts"])
        self.topic.append(event)

    def _mode(self, mode: str | None) -> None:
        self._policy("mode", mode)

    def _job(self) -> None:
        admissions = self.shard.step(self.topic)
        self.topic.clear()
        self.admissions |= {admission["id"]: admission for admission in admissions}
        self.written += admissions

    def _read(self, count: int) -> None:
        for _ in range(min(count, len(self.written))):
            admission = self.written.popleft()
            self.read.append(admission)
            self.local.stated(statement_of(admission))

    def _again(self, back: int, count: int) -> None:
        """Spark's sink writes a batch again after a failure, and the job repeats what stands."""
        for admission in self.read[-back:][:count]:
            self.local.stated(statement_of(admission))

    def check(self) -> None:
        """The job agrees with every answer."""
        self._job()
        assert self.shard.dead_letters == []
        for event_id, answer in self.answers.items():
            admission = self.admissions[event_id]
            assert {name: admission[name] for name in answer} == answer, event_id
            assert "law" not in admission


@given(history=histories(), tail_max=st.sampled_from([100_000, 100_000, 20]))
@tries(600)
def test_it_decides_as_the_job(history: list[tuple[int, str, tuple[Any, ...]]], tail_max: int) -> None:
    """Any history, with decisions read late, again, or not at all, and with a tail that is too long."""
    alone = Alone(tail_max)
    for gap, kind, about in history:
        alone.take(gap, kind, about)
    alone.check()


def test_the_job_away_for_an_hour() -> None:
    """A lone proxy goes on to the last bit as the law, which agrees with each decision when it is back."""
    alone = Alone()
    for number in range(1_200):
        alone.take(3_000 + number % 7, "request", ([number % 11, 1], True, False))
    assert alone.local.tail > 1_200
    alone.check()
    alone.take(0, "read", (1_200,))
    assert (alone.local.tail, alone.local.counts.lost) == (0, 0)
