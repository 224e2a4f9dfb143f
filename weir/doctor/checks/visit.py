"""A visit to a broker's port as a stranger makes it: without a login, straight, past all proxies.

It only asks: which versions the broker has, which brokers there are, and what it may do to Weir's topics.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from enforcer.wire.kafka.codec import request_layout, response_layout
from enforcer.wire.kafka.frames import API_VERSIONS, METADATA
from streaming.contract.errors import WeirError
from streaming.contract.topics import address_text
from streaming.kafka_io.threads import Threads
from weir.doctor.patient import Address
from weir.health import unverified

VISIT_S: Final = 3.0
"""Limit of each of two tries, in plain text and by TLS."""
_METADATA_VERSION: Final = 8
"""The first that tells what one may do (KIP-430), and the last without compact lengths but one."""
_ANSWER_MAX: Final = 16 * 1024 * 1024


_LIST_OFFSETS: Final = 2
_OF_3_0: Final = (_LIST_OFFSETS, 7)
"""An API, and the version of it that Kafka 3.0 brought (KIP-734)."""
Versions = Mapping[int, tuple[int, int]]
"""First and last version by API."""


@dataclass(slots=True, kw_only=True)
class Visit:
    """What came of it.

    Attributes:
        address: of the broker.
        reached: it took the connection.
        versions: first and last version by API, as far as it told.
        answered: it told its brokers without a login.
        allowed: by topic, bits of what it lets a stranger do (KIP-430).
    """

    address: Address
    reached: bool = True
    versions: Versions = field(default_factory=dict)
    answered: bool = False
    allowed: Mapping[str, int] = field(default_factory=dict)


async def visit(address: Address, topics: Sequence[str], limit_s: float = VISIT_S) -> Visit:
    """Go there, and ask about topics; the limit is that of each of two tries."""
    plain = await _try(address, topics, False, limit_s)
    if plain.versions or not plain.reached:
        return plain
    return await _try(address, topics, True, limit_s)


def too_old(versions: Versions) -> bool:
    """Whether a broker that has these is older than Kafka 3.0, before which no proxy can stand."""
    return versions.get(_OF_3_0[0], (0, 0))[1] < _OF_3_0[1]


async def refuse_old(addresses: Sequence[Address], tls: ssl.SSLContext | None) -> None:
    """Ask brokers for their age, as a client does before it logs in; who does not tell in time may be any.

    Raises:
        WeirError: one is too old.
    """

    async def ask(address: Address) -> None:
        versions: Versions = {}
        with suppress(OSError, WeirError, ValueError, EOFError):
            async with asyncio.timeout(VISIT_S), connected(address, tls) as (reader, writer):
                versions = await _versions(reader, writer)
        if versions and too_old(versions):
            where = address_text(*address)
            raise WeirError(f"{where} is older than Kafka 3.0, the oldest that a proxy can stand before")

    await asyncio.gather(*map(ask, addresses))


async def _try(address: Address, topics: Sequence[str], tls: bool, limit_s: float) -> Visit:
    """Put down what is told, as far as it goes; a handshake that fails is one with somebody."""
    found = Visit(address=address, reached=tls)
    # Whatever ends it, it wants something else of its clients: TLS, a certificate, a login.
    with suppress(OSError, WeirError, ValueError, EOFError):
        context = unverified() if tls else None
        async with asyncio.timeout(limit_s), connected(address, context) as (reader, writer):
            found.reached = True
            found.versions = await _versions(reader, writer)
            asked = {
                "Topics": [{"Name": name.encode()} for name in topics],
                "AllowAutoTopicCreation": False,
                "IncludeTopicAuthorizedOperations": True,
            }
            told = await _ask(reader, writer, METADATA, _METADATA_VERSION, asked)
            found.answered = True
            found.allowed = {
                one["Name"].decode("utf-8", "replace"): one["TopicAuthorizedOperations"]
                for one in told["Topics"]
                if not one["ErrorCode"]
            }
    return found


async def _versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Versions:
    told = await _ask(reader, writer, API_VERSIONS, 0, {})
    return {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in told["ApiKeys"]}


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int,
    values: Mapping[str, Any],
) -> Mapping[str, Any]:  # fmt: skip
    """One question; raises OSError, EOFError or WeirError if there is no answer to it."""
    body = struct.pack(">hhih", key, version, key, -1) + request_layout(key, version).write(values)
    writer.write(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    if not 4 <= length <= _ANSWER_MAX:
        raise OSError("no answer of Kafka's")
    return response_layout(key, version).read(await reader.readexactly(length), 4)


@asynccontextmanager
async def connected(
    address: Address, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is gone at the end; raises OSError or ValueError if there is none."""
    reader, writer = await _opened(address, tls)
    try:
        yield reader, writer
    finally:
        # Not closed: TLS would wait for the other side.
        writer.transport.abort()


async def _opened(
    address: Address, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name, port = address
    failure = OSError(f"{name} has no address")
    # By a thread that nobody waits for at the end: the system looks for a host as long as it likes.
    look = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
    there = await asyncio.get_running_loop().run_in_executor(Threads(), look)
    for host in dict.fromkeys(str(one[4][0]) for one in there):
        try:
            return await asyncio.open_connection(host, port, ssl=tls, server_hostname=name if tls else None)
        except OSError as one:
            failure = one
    raise failure
