"""Brokers as `weir doctor` meets them: their age, their addresses, what they let a stranger do."""

import asyncio
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from doctor_kit import brokers, patient_of, told
from tls_kit import Authority

from enforcer.kafka.guard.apis import READABLE
from enforcer.wire.kafka.codec import response_layout
from streaming.contract.errors import WeirError
from streaming.contract.topics import Topics
from weir.doctor.checks.brokers import check_cluster, check_reach, check_versions, visits
from weir.doctor.checks.visit import Visit, refuse_old, visit
from weir.doctor.patient import Unanswered, Unreached, broker_settings, metadata

AT = ("10.0.0.1", 9092)
DESCRIBE, WRITE, ALTER = 1 << 8, 1 << 4, 1 << 7
UNSAID = -(1 << 31)
WEIRS = dict(READABLE)


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    """And one that does says how many brokers it has."""
    assert told(check_cluster(patient_of())) == [("ok", "1 broker at 127.0.0.1:9092")]
    ((status, what),) = told(check_cluster(patient_of({metadata: Unreached("no answer from a:1: why")})))
    assert (status, what) == ("error", "no answer from a:1: why")


@pytest.mark.parametrize(
    ("met", "status", "words"),
    [
        (Visit(address=AT, reached=False), "ok", "out of reach"),
        (Visit(address=AT), "ok", "answers no client without a login"),
        (Visit(address=AT, answered=True), "warning", "answers clients without a login"),
        (Visit(address=AT, answered=True, allowed={"weir.usage": DESCRIBE}), "warning", "without a login"),
        (Visit(address=AT, answered=True, allowed={"weir.usage": UNSAID}), "warning", "without a login"),
        (Visit(address=AT, answered=True, allowed={"weir.usage": WRITE}), "error", "write to weir.usage"),
        (Visit(address=AT, answered=True, allowed={"weir.policies": ALTER}), "error", "weir.policies"),
    ],
)
def test_what_a_stranger_gets_past_the_proxy(met: Visit, status: str, words: str) -> None:
    """Seen from here, which is said each time."""
    (found,) = check_reach(patient_of({visits: [met]}))
    assert (found.status, bool(found.mend)) == (status, status != "ok")
    assert words in found.what and "10.0.0.1:9092" in found.what and "from this machine only" in found.what


def test_topics_that_are_not_there_yet_can_be_let_to_nobody() -> None:
    """A stranger may be kept from them, or not: it is said that nobody knows."""
    known = {visits: [Visit(address=AT, answered=True)], metadata: brokers(topics=Topics("other."))}
    ((_, what),) = told(check_reach(patient_of(known)))
    assert "Weir's topics are not there yet" in what


@pytest.mark.parametrize(
    ("versions", "status", "words"),
    [
        (WEIRS, "ok", "10.0.0.1:9092 speaks what Weir does"),
        (WEIRS | {1: (4, 99)}, "ok", "of 1 API clients get an older version"),
        (WEIRS | {2: (0, 6)}, "error", "older than Kafka 3.0"),
        (WEIRS | {3: (0, 11)}, "warning", "older than Kafka 3.1"),
        (WEIRS | {0: (98, 99)}, "error", "too new: APIs 0"),
    ],
)
def test_how_old_a_broker_is(versions: dict[int, tuple[int, int]], status: str, words: str) -> None:
    """By the versions that it offers anybody."""
    ((said, what),) = told(check_versions(patient_of({visits: [Visit(address=AT, versions=versions)]})))
    assert (said, words in what) == (status, True)


def test_nobody_tells_versions() -> None:
    """What cannot be known is a warning."""
    assert told(check_versions(patient_of({visits: [Visit(address=AT, reached=False)]})))[0][0] == "warning"


def test_all_listeners_are_visited_but_controllers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of our own login, and those that the brokers' settings name; without these the first alone."""
    met: list[tuple[str, int]] = []

    async def note(address: tuple[str, int], _topics: object) -> Visit:
        met.append(address)
        return Visit(address=address)

    monkeypatch.setattr("weir.doctor.checks.brokers.visit", note)
    listeners = "A://b1:1,B://[::1]:2,CONTROLLER://b1:3,C://:4,D://nonsense"
    said = {1: {"advertised.listeners": listeners, "controller.listener.names": "CONTROLLER"}}
    visits(patient_of({broker_settings: said}))
    assert met == [("127.0.0.1", 9001), ("b1", 1), ("::1", 2)]
    met.clear()
    visits(patient_of({broker_settings: Unanswered("no right to")}))
    assert met == [("127.0.0.1", 9001)]


def answer(key: int, version: int, **values: object) -> bytes:
    """A broker's."""
    body = struct.pack(">i", key) + response_layout(key, version).write(values)
    return struct.pack(">i", len(body)) + body


OFFER = answer(18, 0, ApiKeys=[{"ApiKey": 3, "MinVersion": 0, "MaxVersion": 13}])
METADATA = answer(
    3, 8, Topics=[{"Name": b"t", "TopicAuthorizedOperations": WRITE}, {"Name": b"u", "ErrorCode": 29}]
)


@asynccontextmanager
async def answering(
    *answers: bytes, close: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Any]:
    """Where a server answers each request so, and then says nothing or closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for each in answers:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(length)
                writer.write(each)
            if not close:
                await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[:2]


async def visited(*answers: bytes, limit_s: float = 5.0, **how: Any) -> Visit:
    """A visit to such a server."""
    async with answering(*answers, **how) as address:
        return await visit(address, ["t", "u"], limit_s)


async def test_a_visit_to_one_who_answers_all() -> None:
    """Versions, and what a stranger may do to topics that it may see."""
    met = await visited(OFFER, METADATA)
    assert met == Visit(address=met.address, versions={3: (0, 13)}, answered=True, allowed={"t": WRITE})


async def test_a_visit_to_one_who_speaks_tls(tmp_path: Path) -> None:
    """Whoever signed its certificate: a stranger asks for no proof."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).server())
    met = await visited(OFFER, METADATA, tls=context)
    assert (met.versions, met.answered, met.allowed) == ({3: (0, 13)}, True, {"t": WRITE})


@pytest.mark.parametrize(
    "visit_it",
    [
        lambda: visited(OFFER, close=True),
        lambda: visited(OFFER, b"\xff" * 64, close=True),
        lambda: visited(OFFER, struct.pack(">i", 8) + b"\xff" * 8, close=True),
        lambda: visited(OFFER, limit_s=0.2),
    ],
    ids=["closes", "a length of no end", "no answer", "says nothing"],
)
async def test_a_visit_to_one_who_demands_a_login(visit_it: Callable[[], object]) -> None:
    """Its versions are known, and nothing else."""
    met = await visit_it()  # type: ignore[misc]
    assert met == Visit(address=met.address, versions={3: (0, 13)})


async def test_a_visit_to_one_who_says_nothing_at_all_and_to_nobody() -> None:
    """It has a limit."""
    met = await visited(limit_s=0.2)
    assert met == Visit(address=met.address)
    assert await visit(("127.0.0.1", 1), ["t"]) == Visit(address=("127.0.0.1", 1), reached=False)


def offering(list_offsets: int) -> bytes:
    """The versions of a broker that has this one of ListOffsets."""
    return answer(18, 0, ApiKeys=[{"ApiKey": 2, "MinVersion": 0, "MaxVersion": list_offsets}])


@pytest.mark.parametrize(
    "answers", [(offering(7),), (), (b"\xff" * 64,)], ids=["Kafka 3.0", "closes", "a length of no end"]
)
async def test_a_proxy_starts_before_any_other(answers: tuple[bytes, ...]) -> None:
    """Also where nobody is, or nobody says how old it is: the proxy waits, as ever."""
    async with answering(*answers, close=True) as address:
        await refuse_old([address, ("127.0.0.1", 1)], None)


async def test_a_proxy_does_not_start_before_an_old_broker(tmp_path: Path) -> None:
    """It says which one, by TLS too."""
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server())
    async with answering(offering(6), tls=context) as address:
        with pytest.raises(WeirError, match=f"127.0.0.1:{address[1]} is older than Kafka 3.0"):
            await refuse_old([address], authority.context())
    async with answering(offering(6)) as address:
        words = ("--kafka", f"127.0.0.1:{address[1]}", "--listen", "127.0.0.1:0")
        command = (sys.executable, "-m", "weir", "proxy", *words)
        started = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
        _, said = await asyncio.wait_for(started.communicate(), 60)
        assert started.returncode == 1
        assert said.decode().splitlines()[-1].startswith(f"weir: 127.0.0.1:{address[1]} is older")


def test_a_name_that_is_looked_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the system to find it, nor at the end."""
    goes_on, found = threading.Event(), threading.Event()

    def look(*_: object, **__: object) -> list[Any]:
        goes_on.wait(20)
        found.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look)
    assert not asyncio.run(visit(("slow.test", 9092), [], limit_s=0.1)).reached
    assert not found.is_set()
    goes_on.set()
