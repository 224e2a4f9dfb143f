"""The page that Prometheus reads: labels as anybody may choose them, readers who are slow or mean no good."""

import contextlib
import socket
import ssl
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families
from tls_kit import LOOPBACK, Authority

from streaming.contract.errors import WeirError
from streaming.metrics_server import CLIENTS_MAX, serve_metrics

NAMES = ("a\x1b[2Jb", "a\u202eb", "a\x85b", "\udcff", 'q"\\n', "é", "plain")
SHOWN = ("a\\x1b[2Jb", "a\\u202eb", "a\\x85b", "\\udcff", 'q"\\n', "é", "plain")


def read(url: str) -> tuple[str, dict[str, float]]:
    """The page, and its samples by their label."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        text = answer.read().decode()
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return text, {one.labels["topic"]: one.value for one in found if one.name == "weir_seen_total"}


def test_labels_are_shown_and_not_obeyed() -> None:
    """Of every metric of a registry, whatever its names are; what everybody can read stays as it is."""
    registry = CollectorRegistry()
    counter = Counter("weir_seen", "Seen", ["topic"], registry=registry)
    for number, name in enumerate(NAMES):
        counter.labels(name).inc(number)
    Gauge("weir_other", "Without", registry=registry).set(1)
    url = serve_metrics(registry, "127.0.0.1", 0)
    text, shown = read(url)
    assert all(line.isprintable() for line in text.split("\n"))
    assert {name: shown[name] for name in SHOWN} == {name: n for n, name in enumerate(SHOWN)}
    only, _ = read(f"{url}?name[]=weir_other")
    assert "weir_other 1.0" in only and "weir_seen" not in only


class Door:
    """A server of /metrics, and clients of it by TLS or without.

    Attributes:
        url: of the page.
        trust: what a client by TLS goes by; None: there is none.
    """

    def __init__(self, folder: Path, secure: bool) -> None:
        authority, shown = Authority(folder), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        shown.load_cert_chain(*authority.server())
        self.trust = authority.context() if secure else None
        self.url = serve_metrics(CollectorRegistry(), LOOPBACK, 0, (lambda: shown) if secure else None)

    def client(self) -> socket.socket:
        """One that has said nothing."""
        port = int(self.url.split(":")[2].partition("/")[0])
        return socket.create_connection((LOOPBACK, port), timeout=10)

    def begun(self) -> socket.socket:
        """One whose request has begun, its handshake over."""
        client = self.client()
        if self.trust is not None:
            client = self.trust.wrap_socket(client, server_hostname=LOOPBACK)
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        return client

    def scraped(self) -> bytes:
        """The page."""
        handlers: list[Any] = [urllib.request.ProxyHandler({})]
        handlers += [urllib.request.HTTPSHandler(context=self.trust)] if self.trust is not None else []
        with urllib.request.build_opener(*handlers).open(self.url, timeout=5) as answer:
            return bytes(answer.read())


@pytest.mark.parametrize("secure", [False, True])
def test_who_holds_many_places_makes_room(tmp_path: Path, secure: bool) -> None:
    """Threads are bounded, and Prometheus has its page all the same, whether handshakes or requests stop."""
    door, before = Door(tmp_path, secure), threading.active_count()
    with contextlib.ExitStack() as held:
        for come in (door.client, door.begun):
            for _ in range(20):
                held.enter_context(come())
        assert door.scraped() == b""
        assert threading.active_count() <= before + CLIENTS_MAX


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("bound", ["_SILENCE_S", "_CLIENT_S"])
def test_who_takes_too_long_ends(
    tmp_path: Path, secure: bool, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that says nothing, and one that goes on to say a little, which would keep its thread for ever."""
    monkeypatch.setattr(f"streaming.metrics_server.{bound}", 1.0)
    door = Door(tmp_path, secure)
    with door.begun() as client:
        begun, over = time.monotonic(), False
        client.settimeout(0.2)
        while not over and time.monotonic() < begun + 5:
            with contextlib.suppress(TimeoutError):
                if bound == "_CLIENT_S":
                    client.send(b"a")
                try:
                    over = not client.recv(1)
                except ConnectionError:
                    over = True
        assert over and time.monotonic() - begun > 0.5


def test_an_address_that_is_taken_is_said() -> None:
    """In a line."""
    port = int(serve_metrics(CollectorRegistry(), "127.0.0.1", 0).split(":")[2].partition("/")[0])
    with pytest.raises(WeirError, match="cannot serve metrics on 127"):
        serve_metrics(CollectorRegistry(), "127.0.0.1", port)
