"""Clients of Pulsar note what became of their messages (tests/soak)."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
import soak_pulsar_clients
from proxy_kit import until
from served import saying
from soak_history import History, Recorder
from soak_pulsar import answers, place
from soak_pulsar_clients import PulsarReader, PulsarSender, patient


class Id:
    """Of a message."""

    def __init__(self, ledger: int, entry: int) -> None:
        self._own = ledger, entry

    def ledger_id(self) -> int:
        """See pulsar.MessageId."""
        return self._own[0]

    def entry_id(self) -> int:
        """See pulsar.MessageId."""
        return self._own[1]


class Message:
    """One that stands at 3:N."""

    def __init__(self, number: int) -> None:
        self._number = number

    def message_id(self) -> Id:
        """See pulsar.Message."""
        return Id(3, self._number)

    def data(self) -> bytes:
        """See pulsar.Message."""
        return b"p %d  " % self._number


class Client:
    """Knows nobody at first, stores each second message, and has two."""

    def __init__(self) -> None:
        self.asked, self.acknowledged = 0, 0
        self.sent: list[bytes] = []

    def subscribe(self, *_: object, **__: object) -> "Client":
        """See pulsar.Client."""
        self.asked += 1
        if self.asked == 1:
            raise pulsar.ConnectError
        return self

    create_producer = subscribe

    def send_async(self, data: bytes, done: Callable[[Any, Any], None]) -> None:
        """See pulsar.Producer."""
        self.sent.append(data)
        stored = len(self.sent) % 2
        done(pulsar.Result.Ok if stored else pulsar.Result.Timeout, Id(3, len(self.sent)))

    def receive(self, _ms: int) -> Message:
        """See pulsar.Consumer."""
        if self.acknowledged == 2:
            raise pulsar.Timeout
        return Message(self.acknowledged)

    def acknowledge(self, _message: Message) -> None:
        """See pulsar.Consumer."""
        self.acknowledged += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Client:
    """What clients are given."""
    fake = Client()

    @contextmanager
    def client(_service: str) -> Iterator[Client]:
        yield fake

    monkeypatch.setattr(soak_pulsar_clients, "client", client)
    monkeypatch.setattr(soak_pulsar_clients, "_AGAIN_S", 0.01)
    return fake


def test_each_receipt_is_noted(made: Client, tmp_path: Path) -> None:
    """Where a message stands, or that nobody knows."""
    with Recorder(tmp_path / "h") as told, PulsarSender(told, "p", "h:1", "t", 1_000.0):
        until(lambda: len(made.sent) >= 3, what="messages")

    first, second, *_ = History.read(tmp_path / "h")["sent"]
    assert (first["value"], first["offset"], first["code"]) == ("p 0", 3 << 32 | 1, 0)
    assert (second["value"], second["offset"]) == ("p 1", None) and second["code"] != 0


def test_each_message_is_noted_and_acknowledged(made: Client, tmp_path: Path) -> None:
    """Until there is none."""
    with Recorder(tmp_path / "h") as told, PulsarReader(told, "r", "h:1", "t"):
        until(lambda: made.acknowledged == 2, what="messages")

    read = History.read(tmp_path / "h")["read"]
    assert [(one["value"], one["offset"]) for one in read] == [("p 0", 3 << 32), ("p 1", 3 << 32 | 1)]


def test_who_is_told_to_stop_asks_for_nothing_more(made: Client) -> None:
    """A broker that is away may stay away."""
    stopping = threading.Event()
    stopping.set()
    assert patient(made.subscribe, stopping) is None
    assert made.asked == 0


def test_places_are_in_order() -> None:
    """Of ledgers first; a message that was there already has none that is told."""
    assert place(Id(1, 9)) < place(Id(2, 0)) < place(Id(2, 1))  # type: ignore[arg-type]  # what it asks
    assert place(Id(-1, -1)) == -1  # type: ignore[arg-type]  # what it asks of it


@pytest.mark.parametrize("said", [b"", b"\0"])
def test_a_proxy_answers_when_its_broker_does(said: bytes) -> None:
    """Else the connection ends, or is not made."""
    with saying(said) as port:
        assert answers(f"127.0.0.1:{port}", 10) == bool(said)
    assert not answers(f"127.0.0.1:{port}", 1)
