"""Whether another checkpoint's job decides by the same topics; with Spark: tests/spark/test_two_jobs.py."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from message_kit import Record

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.job.process import other_job as module
from streaming.job.process.other_job import SILENT_S, other_job, said_of

NOW = 1_800_000_000_000
OURS, THEIRS = "a", "b"


def tick(query: str, ago_s: float, **more: Any) -> Record:
    """One that came so long before the start."""
    said = {"type": "tick", "query": query, "host": "far", "pid": 7, **more}
    return Record(said, ts=NOW - int(ago_s * 1000))


class World:
    """A cluster's `weir.usage`, and the time that goes by while it is listened to.

    Args:
        looks: what comes by each look, None: it fails; by those after the last one nothing does.
        slow_s: what reading a record takes.
    """

    def __init__(self, looks: Sequence[Sequence[Record] | None], slow_s: float = 0.0) -> None:
        self._looks, self._slow_s, self.passed_s = iter(looks), slow_s, 0.0
        self.said: list[str] = []

    def spans(self, topic: str, from_ms: int, *, limit_s: float) -> str:
        """Of the last 40 s."""
        assert (topic, from_ms) == ("weir.usage", NOW - 40_000) and limit_s == 5.0
        return topic

    def read_on(self, _spans: str, _limit_s: float) -> Iterator[Record]:
        """What came since the last look."""
        came = next(self._looks, ())
        if came is None:
            raise WeirError("Kafka does not answer")
        for record in came:
            self.passed_s += self._slow_s
            yield record

    def close(self) -> None:
        """Nothing to close."""

    def pause(self, limit_s: float) -> None:
        """Time goes by."""
        self.passed_s += limit_s


def found(monkeypatch: pytest.MonkeyPatch, world: World, query: str = OURS, since: int | None = None) -> str:
    """Who is found there; once we tick, whatever our own clock says."""
    own_ms = NOW if since is None else 0
    clock = SimpleNamespace(monotonic=lambda: world.passed_s, time_ns=lambda: own_ms * 1_000_000)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "Reader", lambda *_: world)
    return other_job(Cluster("b:1"), query, world.pause, world.said.append, since)


@pytest.mark.parametrize(
    "there",
    [
        [],
        # Killed or stopped, and started again on the same checkpoint.
        [tick(OURS, 1)],
        [tick(OURS, 1, leaving=True)],
        [tick(THEIRS, 12), tick(THEIRS, 2, leaving=True)],
        # The later one is read first, from another partition.
        [tick(THEIRS, 2, leaving=True), tick(THEIRS, 12)],
        # An earlier Weir's, and what is no tick of ours.
        [Record({"type": "tick"}, ts=NOW)],
        [Record(value, ts=NOW) for value in (None, b'"tick"', b'{"type":"tick"', b'{"tick":1,"query":"b"}')],
        [Record({"type": "tick", "query": ["b"]}, ts=NOW), tick(THEIRS, 1, more="x" * 1_024)],
    ],
)
def test_a_job_that_is_alone_starts_at_once(monkeypatch: pytest.MonkeyPatch, there: list[Record]) -> None:
    """As does one whose last run was killed a moment ago."""
    world = World([there])
    assert (found(monkeypatch, world), world.passed_s, world.said) == ("", 0.0, [])


@pytest.mark.parametrize("query", [OURS, ""])
def test_one_that_goes_on_is_named(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """As soon as it ticks again, however old its last tick is by our clock."""
    world = World([[tick(OURS, 30, leaving=True), tick(THEIRS, 39)], [], [tick(THEIRS, -2)]])
    assert (found(monkeypatch, world, query), world.passed_s) == ("pid 7 on host far", 2.0)
    assert world.said == [
        "waiting for at most 20 s: a job of another checkpoint ticked lately (pid 7 on host far)"
    ]


def test_one_that_was_killed_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than two ticks may be apart, and no longer."""
    world = World([[tick(THEIRS, 3)]])
    assert (found(monkeypatch, world), world.passed_s) == ("", SILENT_S)


def test_one_that_was_heard_is_listened_to_though_kafka_is_away_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both would decide; one that cannot be heard to the end is not known to be gone."""
    world = World([[tick(THEIRS, 3)], None, [tick(THEIRS, -2)]])
    assert (found(monkeypatch, world), world.passed_s) == ("pid 7 on host far", 2.0)
    assert found(monkeypatch, World([[tick(THEIRS, 3)], *[None] * 20])) == "pid 7 on host far"


def test_one_that_leaves_meanwhile_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was just being stopped."""
    world = World([[tick(THEIRS, 3)], [], [tick(THEIRS, -2, leaving=True)]])
    assert (found(monkeypatch, world), world.passed_s) == ("", 2.0)


@pytest.mark.parametrize("theirs", [
    tick(THEIRS, -1, since=NOW - 1),
    # From another partition, whose broker's clock is behind.
    tick(THEIRS, 39, since=NOW - 1),
    # In the same ms; ours is "c" here.
    tick(THEIRS, -1, since=NOW),
])  # fmt: skip
def test_of_jobs_that_start_together_the_later_one_hears_the_other(
    monkeypatch: pytest.MonkeyPatch, theirs: Record
) -> None:
    """Neither ticked as both looked, and both went on to decide."""
    world = World([[], [], [theirs]])
    assert (found(monkeypatch, world, "c", NOW), world.passed_s) == ("pid 7 on host far", 2.0)
    assert not world.said


@pytest.mark.parametrize("looks", [
    [[], [tick(THEIRS, -1, since=NOW)]],
    [[], [tick(THEIRS, -1, since=NOW + 1)]],
    # Its first one, which does not know yet, or an earlier Weir's; what is no time.
    [[], [tick(THEIRS, -1)]],
    [[], [tick(THEIRS, -1, since=False)], [tick(THEIRS, -2, since=str(NOW - 1))]],
    [[], [tick(THEIRS, -1, since=NOW - 1, leaving=True)]],
    # Killed before we began, and Kafka is away for a moment, or until the end.
    [[tick(THEIRS, 30, since=NOW - 99_000)], None],
    [[tick(THEIRS, 30, since=NOW - 99_000)], *[None] * 20],
])  # fmt: skip
def test_of_jobs_that_start_together_the_earlier_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[Record] | None]
) -> None:
    """Or nobody would decide."""
    world = World(looks)
    assert (found(monkeypatch, world, OURS, NOW), world.passed_s) == ("", SILENT_S)
    assert not world.said


def test_of_those_the_first_look_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a partition has no leader for a moment: nobody looks again later."""
    world = World([None, [], [tick(THEIRS, -1, since=NOW - 1)]])
    assert (found(monkeypatch, world, "c", NOW), world.passed_s) == ("pid 7 on host far", 2.0)
    with pytest.raises(WeirError, match="Kafka does not answer"):
        found(monkeypatch, World([None] * 40), "c", NOW)


def test_who_writes_to_the_topic_writes_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's name is text from outside."""
    world = World([[tick(THEIRS, 3)], [tick(THEIRS, -1, host="\x1b[2Kx")]])
    assert found(monkeypatch, world) == "pid 7 on host \\x1b[2Kx"


def test_a_topic_that_takes_too_long_holds_up_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where very much is reported."""
    with pytest.raises(WeirError, match=r"weir\.usage has too many records for 5 s"):
        found(monkeypatch, World([[tick(OURS, 1)] * 100], slow_s=0.1))


def test_a_tick_says_whose_it_is() -> None:
    """By what all queries on a checkpoint have in common, and where to find it."""
    said = said_of(OURS)
    assert said["query"] == OURS and said["pid"] > 0 and said["host"]
