"""What the newest records of `weir.usage` tell `weir doctor`: who lives, and whose clock is wrong."""

from collections.abc import Iterator
from typing import Any

import pytest
from doctor_kit import patient_of, told
from message_kit import Record

from streaming.kafka_io.reader import Span
from weir.doctor.checks import signs
from weir.doctor.checks.signs import Heard, check_clocks, check_job, check_proxies, listen

NOW = 1_800_000_000_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours stands."""
    monkeypatch.setattr(signs, "wall_ms", lambda: NOW)


def alive(proxy: str, ts: int, instance: str = "a", own_ms: int | None = None, **more: Any) -> Record:
    """A proxy's word at a time; by its own clock."""
    said = f"{proxy}-alive-{ts if own_ms is None else own_ms}-1"
    return Record({"type": "alive", "id": said, "proxy": proxy, "instance": instance, **more}, ts=ts)


def tick(ts: int, **more: Any) -> Record:
    """The job's."""
    return Record({"type": "tick", **more}, ts=ts)


def heard(*records: Any, live: int | None = None) -> Any:
    """What was heard of these; `live`: the last one came at this time by our clock."""
    found = Heard()
    for number, record in enumerate(records, 1):
        found.take(record, live if number == len(records) else None)
    return patient_of({listen: found})


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([], "warning"),
        ([alive("p", NOW - 100)], "ok"),
        ([alive("p", NOW - 20_000)], "warning"),
        ([alive("p", NOW - 100, leaving=True)], "warning"),
        # One process after the other.
        ([alive("p", NOW - 9_000, "a"), alive("p", NOW - 100, "b")], "ok"),
        ([alive("p", NOW - 9_000, "a"), alive("p", NOW - 5_000, "b"), alive("p", NOW - 100, "b")], "ok"),
        # Both go on.
        ([alive("p", NOW - 9_000, "a"), alive("p", NOW - 8_000, "b"), alive("p", NOW - 100, "a")], "error"),
        ([alive("p", NOW - 9_000, "a"), alive("q", NOW - 8_000, "b"), alive("p", NOW - 100, "a")], "ok"),
    ],
)
def test_proxies_of_one_name(said: list[Record], status: str) -> None:
    """Two that live, but not one that took the other's place."""
    found = told(check_proxies(heard(*said)))
    assert [each for each, _ in found] == [status]


def test_proxies_are_named() -> None:
    """All that live."""
    ((_, what),) = told(check_proxies(heard(alive("p2", NOW), alive("p1", NOW))))
    assert what == "alive, each with a name of its own: p1, p2"


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ([], "warning", "nothing was ever reported"),
        ([tick(NOW - 29_000)], "ok", "ticked 29s ago"),
        ([tick(NOW - 31_000), alive("p", NOW)], "error", "it ticked last 31s ago; the newest record"),
        ([alive("p", NOW - 3_000)], "error", "no tick of it was found; the newest record of weir.usage"),
    ],
)
def test_whether_the_job_is_there(said: list[Record], status: str, words: str) -> None:
    """By its ticks."""
    ((found, what),) = told(check_job(heard(*said)))
    assert (found, words in what) == (status, True)


def test_jobs_on_two_checkpoints_are_named() -> None:
    """Each decides all; not so one that has left, or has not ticked for longer than a job may."""
    first, second = ({"query": name, "host": name, "pid": 7} for name in ("a", "b"))
    ((status, what),) = told(check_job(heard(tick(NOW - 9_000, **first), tick(NOW, **second))))
    assert (status, what) == (
        "error", "2 jobs decide, on a checkpoint each: pid 7 on host a; pid 7 on host b"
    )  # fmt: skip
    for gone in (tick(NOW - 9_000, **first, leaving=True), tick(NOW - 31_000, **first)):
        assert told(check_job(heard(gone, tick(NOW, **second))))[0][0] == "ok"


def test_the_brokers_clock_counts_for_the_age_of_a_tick() -> None:
    """Ours is an hour ahead: the tick is new all the same."""
    late = NOW - 3_600_000
    assert told(check_job(heard(tick(late - 1_000), tick(late), live=NOW)))[0][0] == "ok"


def test_clocks_that_agree_and_one_that_cannot_be_told() -> None:
    """Ours is known only by a record that came while we listened."""
    said = alive("p", NOW - 500, own_ms=NOW - 520), tick(NOW, brokers_ahead_ms=-3)
    assert told(check_clocks(heard(*said, live=NOW))) == [
        ("ok", "within 1 s of the brokers': proxy p, the job's host, this host")
    ]
    ((status, what),) = told(check_clocks(heard(*said)))
    assert status == "warning" and "this host's clock cannot be told" in what


@pytest.mark.parametrize(
    ("said", "live", "words"),
    [
        ([tick(NOW, brokers_ahead_ms=1_500)], NOW, "the job's host is 1.5 s behind the brokers'"),
        ([tick(NOW, brokers_ahead_ms=-1_500)], NOW, "the job's host is 1.5 s ahead of the brokers'"),
        ([alive("p", NOW, own_ms=NOW + 60_000)], NOW, "proxy p is 60.0 s ahead of the brokers'"),
        ([alive("p", NOW, own_ms=NOW - 2_000)], NOW, "proxy p is 2.0 s behind the brokers'"),
        ([tick(NOW + 5_000)], NOW, "this host is 5.0 s behind the brokers'"),
        ([tick(NOW - 5_000)], NOW, "this host is 5.0 s ahead of the brokers'"),
    ],
)
def test_clocks_apart(said: list[Record], live: int, words: str) -> None:
    """Each is named, and which way."""
    ((status, what),) = told(check_clocks(heard(*said, live=live)))
    assert (status, what) == ("warning", f"the clock of {words}")


def test_of_several_words_the_quickest_tells() -> None:
    """A record that took long to be written makes no clock wrong."""
    slow, quick = alive("p", NOW, own_ms=NOW - 4_000), alive("p", NOW, own_ms=NOW - 10)
    assert told(check_clocks(heard(slow, quick, live=NOW)))[0][0] == "ok"


@pytest.mark.parametrize(
    "value",
    [b"", b"nonsense alive tick", b'{"type":"tick"', b'{"tick":1}', b'["tick","alive"]', b'{"type":"alive"}'],
)
def test_what_is_no_word_of_ours_is_passed_over(value: bytes) -> None:
    """Anybody may write there."""
    found = Heard()
    found.take(Record(value, ts=NOW), None)  # type: ignore[arg-type]
    assert (found.newest_ms, found.tick_ms, found.signs) == (NOW, None, [])


def test_times_that_producers_set_tell_nothing_of_clocks() -> None:
    """A topic without LogAppendTime has their clocks, not the brokers'."""
    record = alive("p", NOW - 9_000, own_ms=NOW)
    record.timestamp = lambda: (1, NOW - 9_000)  # type: ignore[method-assign]
    found = Heard()
    found.take(record, NOW)  # type: ignore[arg-type]
    assert (found.clocks, found.ahead_ms) == ({}, None)


class Usage:
    """`weir.usage` as a reader has it; the test's own consumer, too.

    Args:
        told: what is there when it is asked for the first time.
        late: comes while that is read.
        new: comes while it is listened to, a batch each.
    """

    def __init__(self, told: list[Record], late: list[Record], *new: list[Record]) -> None:
        self._told, self._batches, self.consumer = told, [late, *new], self
        self._ends = iter([len(told), len(told) + len(late)])
        for offset, record in enumerate(told + late + [one for batch in new for one in batch]):
            record.offset, record.partition = lambda offset=offset: offset, lambda: 0  # type: ignore[misc]

    def spans(self, topic: str, limit_s: float) -> list[Span]:
        """All that is there now."""
        return [Span(topic=topic, partition=0, start=0, end=next(self._ends))]

    def since(self, spans: list[Span], _ts_ms: int, _limit_s: float) -> list[int]:
        """All of it is new enough."""
        return [span.start for span in spans]

    def messages(self, span: Span, _limit_s: float) -> Iterator[Record]:
        """In order."""
        return iter(self._told[span.start : span.end])

    def assign(self, where: list[Any]) -> None:
        """From there on."""
        (begin,) = (each.offset for each in where)
        self._batches = [[one for one in batch if one.offset() >= begin] for batch in self._batches]

    def batch(self, _limit_s: float) -> Iterator[Record]:
        """One after the other."""
        return iter(self._batches.pop(0))

    def close(self) -> None:
        """Nothing to close."""


def listened(usage: Usage, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What doctor hears of it."""
    monkeypatch.setattr(signs, "Reader", lambda *_: usage)
    return patient_of()


def test_what_came_while_older_records_were_read_tells_nothing_of_our_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for us; the job is heard by it all the same."""
    usage = Usage([alive("p", NOW - 40_000)], [tick(NOW - 2_200)], [alive("p", NOW - 5)])
    asked = listened(usage, monkeypatch)
    assert told(check_clocks(asked)) == [("ok", "within 1 s of the brokers': proxy p, this host")]
    assert told(check_job(asked)) == [("ok", "the job ticked 2s ago")]


def test_a_record_that_a_transaction_held_up_makes_our_clock_no_wrong_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one says better."""
    usage = Usage([], [], [tick(NOW - 4_000)], [tick(NOW - 5)])
    assert told(check_clocks(listened(usage, monkeypatch)))[0][0] == "ok"


@pytest.mark.parametrize(("limit_s", "job", "proxies"), [(-1.0, "warning", "warning"), (60.0, "ok", "ok")])
def test_where_there_is_no_time_to_read_all_nobody_is_said_to_be_away(
    limit_s: float, job: str, proxies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest records may be those that were not read."""
    monkeypatch.setattr(signs, "_READ_S", limit_s)
    asked = listened(Usage([alive("p", NOW - 90)], [tick(NOW - 80)], [Record({}, ts=NOW)]), monkeypatch)
    ((of_job, what),), ((of_proxies, _),) = told(check_job(asked)), told(check_proxies(asked))
    assert (of_job, of_proxies, "not all was read" in what) == (job, proxies, limit_s < 0)
    assert "this host's clock" not in told(check_clocks(asked))[0][1]
