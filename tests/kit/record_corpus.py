"""Makes tests/attack/corpus.json, the seeds of the fuzzer, in a minute.

`PYTHONPATH=. python tests/kit/record_corpus.py`

A broker of its own that tells clients a relay's address; each client does all that it can through the relay,
which keeps one exchange for each client, API and version.
"""

import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster_kit import LOOPBACK, USERS, address
from frame_corpus import CORPUS, Exchange, save
from recorded_clients import CLIENTS, Place
from relay_kit import exactly, send_frame

from weir.stack.kafka import LocalKafka, free_port

PRODUCE = 0
SIZE_MAX = 1_500
"""Longer answers are left out where a shorter one is there; nothing is gained by their length."""


class Recorder:
    """Relays that keep what passes.

    Args:
        pairs: (port of ours, broker's port).
    """

    def __init__(self, pairs: list[tuple[int, int]]) -> None:
        self.client = ""
        self.kept: dict[tuple[str, int, int], Exchange] = {}
        for ours, brokers in pairs:
            listener = socket.create_server((LOOPBACK, ours))
            threading.Thread(target=self._accept, args=(listener, brokers), daemon=True).start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            client, _ = listener.accept()
            with contextlib.suppress(OSError):
                broker = socket.create_connection((LOOPBACK, port))
                asked: dict[int, bytes] = {}
                threading.Thread(target=self._requests, args=(client, broker, asked), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, bytes]) -> None:
        for frame in _frames(client):
            asked[int.from_bytes(frame[4:8], "big")] = frame
            if int.from_bytes(frame[:2], "big") == PRODUCE:
                # Without acks there is no answer to wait for; with acks it takes this one's place.
                self._keep(frame, b"")
            send_frame(broker, frame)
        broker.close()

    def _answers(self, broker: socket.socket, client: socket.socket, asked: dict[int, bytes]) -> None:
        for frame in _frames(broker):
            request = asked.pop(int.from_bytes(frame[:4], "big"), b"")
            if request:
                self._keep(request, frame)
            send_frame(client, frame)
        client.close()

    def _keep(self, request: bytes, answer: bytes) -> None:
        key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
        own = (self.client, key, version)
        before = self.kept.get(own)
        size = len(request) + len(answer)
        if before is None or _worth(size) > _worth(len(before.request) + len(before.answer)):
            self.kept[own] = Exchange(*own, request, answer)


def _worth(size: int) -> int:
    """The fullest exchange that is not too long."""
    return size if size <= SIZE_MAX else -size


def _frames(source: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        while True:
            yield exactly(source, int.from_bytes(exactly(source, 4), "big"))


def main() -> None:
    """Record them all."""
    plain, sasl = free_port(), free_port()
    told = f"PLAINTEXT://{LOOPBACK}:{plain},SASL://{LOOPBACK}:{sasl}"
    with tempfile.TemporaryDirectory() as folder:
        kafka = LocalKafka(
            folder, sasl=USERS, auto_create_topics=True,
            properties={"advertised.listeners": told},
        )  # fmt: skip
        with kafka:
            recorder = Recorder(
                [(plain, address(kafka.bootstrap)[1]), (sasl, address(kafka.sasl_bootstrap)[1])]
            )
            place = Place(f"{LOOPBACK}:{plain}", f"{LOOPBACK}:{sasl}", Path(folder))
            for client, works in CLIENTS.items():
                recorder.client = client
                for work in works:
                    _try(client, work, place)
            save(recorder.kept.values())
    print(len(recorder.kept), "exchanges,", CORPUS.stat().st_size, "bytes")  # noqa: T201


def _try(client: str, work: Callable[[Place], None], place: Place) -> None:
    """A broker that refuses something answers all the same, and that is recorded."""
    try:
        work(place)
    except Exception as error:  # noqa: BLE001
        print(client, work.__name__, repr(error)[:200], file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
