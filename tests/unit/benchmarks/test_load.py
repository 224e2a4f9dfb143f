"""How the benchmarks make load: the same events each time, at the rate that was asked for."""

import asyncio
import time

import numpy as np
import orjson
import pyarrow as pa
import pytest

from benchmarks.load import asking
from benchmarks.load.asking import drive, settled
from benchmarks.load.events import (
    POLICIES,
    T0,
    drawn,
    packed_by,
    packed_requests,
    requests,
    user,
    users_of,
)
from streaming.columns.packed import unpack
from streaming.contract.errors import WeirError
from streaming.contract.events import Request
from streaming.laws.name_hashes import partition_of
from streaming.laws.registry import LAWS
from streaming.policy.policy_set import PolicySet


class FakeAsker:
    """Answers every request but those named at once."""

    def __init__(self, lost: frozenset[int] = frozenset()) -> None:
        self.latencies: dict[int, float] = {}
        self.asked: list[float] = []
        self._lost = lost

    def ask(self, number: int) -> None:
        """Note the request."""
        self.asked.append(time.monotonic())
        if number not in self._lost:
            self.latencies[number] = float(number)


def test_events_are_what_the_contract_reads() -> None:
    """Each is a strict request whose subject its quota's policy knows; the same at every call."""
    made = list(requests(50, 7, ts=True))
    assert made == list(requests(50, 7, ts=True))
    events = [LAWS.parse(value, default_id="", default_ts=None) for _, value in made]
    policies = PolicySet(POLICIES)
    for (key, _), event in zip(made, events, strict=True):
        assert isinstance(event, Request) and event.strict and event.deadline_ms is None
        quota = policies.mutation_quota(event.user, event.client_id)
        assert quota is not None and key.decode() == event.subject == quota.subject
    assert len({event.id for event in events}) == 50
    assert {key.decode() for key, _ in made} <= {f"user={user(number)}" for number in range(7)}


def test_events_without_a_time_take_the_records() -> None:
    """As the proxy writes them: the broker's clock is the clock of all."""
    (_, record), (_, own) = *requests(1, 1), *requests(1, 1, ts=True)
    assert "ts" not in orjson.loads(record) and orjson.loads(own) == {**orjson.loads(record), "ts": T0}


def test_packed_events_are_those_that_were_asked_for() -> None:
    """One a principal, in their order, ids going on from the first."""
    (value,) = packed_by(np.array([3, 1_234_567, 0]), name="a", first=7)
    type, rows = unpack(value)
    names = [user(3), user(1_234_567), user(0)]
    assert type == "request" and rows["user"].to_pylist() == users_of(np.array([3, 1_234_567, 0])).to_pylist()
    assert rows["user"].to_pylist() == names and rows["id"].to_pylist() == ["a-7", "a-8", "a-9"]
    assert rows["subject"].to_pylist() == [f"user={name}" for name in names]


@pytest.mark.parametrize("skew", [0.0, 1.1])
def test_a_partition_has_as_much_as_its_principals_ask(skew: float) -> None:
    """Each record is of one partition; by Zipf's law the first asks most, and its partition gets more."""
    asked = np.zeros(2)
    first = 0
    for _, value, partition in packed_requests(20_000, 50, partitions=2, rows=500, skew=skew):
        subjects = pa.array(unpack(value)[1]["subject"].to_pylist())
        assert set(partition_of(subjects, 2).tolist()) == {partition}
        asked[partition] += len(subjects)
        first += subjects.to_pylist().count(f"user={user(0)}")
    weights = np.arange(1.0, 51) ** -skew
    assert asked.sum() == 20_000 and first == pytest.approx(20_000 * weights[0] / weights.sum(), rel=0.15)
    places = partition_of(pa.array([f"user={user(number)}" for number in range(50)]), 2)
    wanted = [weights[places == partition].sum() / weights.sum() for partition in (0, 1)]
    assert asked / 20_000 == pytest.approx(wanted, abs=0.03)


def test_principals_are_drawn_evenly_or_by_zipf() -> None:
    """Evenly no two are alike; by Zipf's law the second is drawn half as often as the first, about."""
    draw = np.random.default_rng(1)
    assert len(set(drawn(draw, 1_000, 900, 0.0).tolist())) == 900
    often = np.bincount(drawn(draw, 1_000, 100_000, 1.1), minlength=1_000)
    assert often[1] / often[0] == pytest.approx(2**-1.1, rel=0.1) and len(often) == 1_000


def test_drive_asks_no_more_than_was_said() -> None:
    """Numbers follow each other, none is left out, whether or not answers come; a slow machine asks fewer."""
    asker = FakeAsker(lost=frozenset(range(1000)))
    looks: list[float] = []
    end = asyncio.run(drive(asker, 200.0, 0.25, 10, looks.append))
    assert end == 10 + len(asker.asked) and 1 <= len(asker.asked) <= 50
    assert looks == sorted(looks) and looks[-1] < 0.25


def test_settled_gives_samples_in_order() -> None:
    """One for each request of the window."""
    asker = FakeAsker()
    for number in range(6):
        asker.ask(number)
    assert asyncio.run(settled(asker, range(3, 6))) == [3.0, 4.0, 5.0]


def test_a_lost_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Percentiles without the slowest samples would be a lie."""
    monkeypatch.setattr(asking, "ANSWER_LIMIT_S", 0.1)
    asker = FakeAsker(lost=frozenset({1}))
    for number in range(3):
        asker.ask(number)
    with pytest.raises(WeirError, match="1 of 3 requests got no answer"):
        asyncio.run(settled(asker, range(3)))
