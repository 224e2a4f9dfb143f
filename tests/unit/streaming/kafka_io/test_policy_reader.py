"""Who reads `weir.policies` on, without a broker."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from message_kit import Record

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io import policy_topic, policy_turn
from streaming.kafka_io import reader as reader_module
from streaming.kafka_io.policy_topic import PolicyReader, Update
from streaming.kafka_io.policy_turn import NotInForce, change_policies
from streaming.kafka_io.reader import Reader, Span

A, B = "quotas[user=a]", "quotas[user=b]"


class Stored(Reader):
    """A reader of a topic of one partition, whose records are these."""

    records: list[Record]

    def spans(self, *_: Any, **__: Any) -> list[Span]:
        """All of it."""
        return [Span(topic="t", partition=0, start=0, end=len(self.records))]

    def messages(self, span: Span, *_: Any, **__: Any) -> Iterator[Any]:
        """Its records there."""
        yield from self.records[span.start : span.end]


def record(path: str, rate: float, offset: int) -> Record:
    """One that sets a rate."""
    value = {"controller_mutation_rate": rate}
    return Record({"type": "policy", "path": path, "value": value}, offset=offset)


def test_a_topic_made_again_says_alone_what_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weir top --watch` went on to name the former topic's limits, and counted its versions."""
    monkeypatch.setattr(policy_topic, "Reader", Stored)
    with PolicyReader(Cluster("127.0.0.1:1"), told_max=0) as reader:
        monkeypatch.setattr(Stored, "records", [record(A, 1, 0), record(B, 2, 1)], raising=False)
        assert set(reader.read(5).entries) == {A, B}
        monkeypatch.setattr(Stored, "records", [record(B, 3, 0)])
        log = reader.read(5)
        assert dict(log.entries) == {B: {"controller_mutation_rate": 3}}
        assert (log.newest_version, log.told_max) == (2, 0)
        monkeypatch.setattr(Stored, "records", [])
        assert dict(reader.read(5).entries) == {}


def test_who_comes_back_reads_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weir collect kafka` read all policies each five seconds, and of very many it never came to the end."""
    monkeypatch.setattr(policy_topic, "Reader", Stored)
    reader, clients = PolicyReader(Cluster("127.0.0.1:1")), set[Reader]()
    stored: list[Record] = []
    monkeypatch.setattr(Stored, "records", stored, raising=False)
    for number, path in enumerate((A, B)):
        stored.append(record(path, 1, number))
        with reader:
            log = reader.read(5)
            clients.add(reader._reader)
        assert log.records == number + 1
    assert set(log.entries) == {A, B} and len(clients) == 2


def test_what_was_written_is_waited_for_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again meanwhile, a topic never says it; `weir policy apply` asked a hundred times a second."""
    monkeypatch.setattr(policy_topic, "Reader", Stored)
    monkeypatch.setattr(Stored, "records", [], raising=False)
    monkeypatch.setattr(policy_turn, "Turn", lambda *_: SimpleNamespace(write=lambda *_: None))
    wanted, cluster = [Update(path=A, value=None)], Cluster("127.0.0.1:1")
    with pytest.raises(NotInForce, match=r"could not be read back: they have not come in time"):
        change_policies(cluster, lambda _log: wanted, origin="apply", timeout_s=0.1)


LISTED = SimpleNamespace(
    topics={Cluster("127.0.0.1:1").topics.policies: SimpleNamespace(error=None, partitions=[0])}
)


@pytest.fixture
def clock() -> SimpleNamespace:
    """That of a reader."""
    return SimpleNamespace(now_s=0.0)


def run_out(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace, limit_s: float, said: str, **answers: Any
) -> PolicyReader:
    """A reader that gave up, with these words, a broker that answers so."""
    with PolicyReader(Cluster("127.0.0.1:1")) as reader:
        reader._reader.close()
        reader._reader.consumer = SimpleNamespace(**answers, close=lambda: None)
        for module in (policy_topic, reader_module):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
        with pytest.raises(WeirError, match=said):
            reader.read(limit_s)
    return reader


def test_no_question_begins_a_limit_anew(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    """A broker that told of the partitions late, and of no offsets: `weir policy` waited ten seconds more."""

    def listed(*_: Any, timeout: float) -> Any:
        clock.now_s += 4.0
        return LISTED

    def silent(*_: Any, timeout: float) -> None:
        clock.now_s += timeout

    said = "it did not tell the offsets in time"
    run_out(monkeypatch, clock, 5, said, list_topics=listed, get_watermark_offsets=silent)
    assert clock.now_s == 5


def test_a_broker_that_falls_silent_is_waited_for_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    """Just before its end; `weir policy get` waited as long again."""

    def poll(limit_s: float) -> Record | None:
        begins = not clock.now_s
        clock.now_s += 29.0 if begins else limit_s
        return record(A, 1, 0) if begins else None

    reader = run_out(
        monkeypatch, clock, 30, "it stalled at offset 1 of 2",
        list_topics=lambda *_, **__: LISTED,
        get_watermark_offsets=lambda *_, **__: (0, 2),
        assign=lambda _: None,
        position=lambda _: [SimpleNamespace(offset=1)],
        poll=poll,
    )  # fmt: skip
    assert reader.log.records == 1 and clock.now_s < 31
