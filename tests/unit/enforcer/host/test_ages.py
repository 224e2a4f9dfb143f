"""Old connections on real sockets: a client that reads slowly gets all that was begun for it, whole."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from connection_kit import Rig, framed, opaque
from door_kit import LIMIT_S, Door
from pulsar_rig import MESSAGE, PulsarRig, connect, connected
from tls_kit import Authority

from enforcer.kafka.connection import Connection as KafkaConnection
from enforcer.pulsar.connection import Connection as PulsarConnection

LATER_MS = 20_000.0
"""Any end that was begun before has had its time (stop_timeout_ms)."""
LOOP = uvloop.new_event_loop
SIZE = 16 << 20
"""More than the kernel takes of who is not read."""
Said = tuple[KafkaConnection | PulsarConnection, bytes, Callable[[], bytes]]
"""A connection, what its client says, and what then makes a large answer, and says which."""


def of_kafka() -> Said:
    """One large response."""
    rig = Rig()
    connection, answer = KafkaConnection(rig, lambda: ("kafka", 9092), rig._upstream), bytes(3) + b"\1"

    def answered() -> bytes:
        connection.upstream_received(whole := framed(answer + bytes(SIZE)))
        return whole

    return connection, opaque(1), answered


def of_pulsar() -> Said:
    """Many messages, the last in part."""
    rig = PulsarRig()
    rig.connection = connection = PulsarConnection(rig, rig._upstream)

    def answered() -> bytes:
        rig.dialled()
        rig.down(connected())
        messages = MESSAGE * (SIZE // len(MESSAGE))
        rig.down(messages + MESSAGE[:500])
        connection.drain("age")
        rig.down(MESSAGE[500:] + MESSAGE[:500])
        return connected() + messages + MESSAGE

    return connection, connect(), answered


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("made", [of_kafka, of_pulsar])
async def test_what_was_begun_arrives_whole(
    authority: Authority, made: Callable[[], Said], secure: bool
) -> None:
    """However late its client reads it; then the connection ends."""

    async def aging(connection: KafkaConnection | PulsarConnection) -> None:
        while True:
            connection.drain("age")
            connection.check(LATER_MS)
            await asyncio.sleep(0.01)

    connection, said, answer = made()
    async with Door(made=lambda _door: connection, tls=authority.door() if secure else None) as door:
        reader, writer = await door.connect(context=authority.context() if secure else None)
        writer.write(said)
        await asyncio.sleep(0.2)
        whole = answer()
        ages = asyncio.create_task(aging(connection))
        await asyncio.sleep(0.1)
        try:
            same = await asyncio.wait_for(reader.read(), LIMIT_S) == whole
        finally:
            ages.cancel()
            writer.transport.abort()
    # Their difference would fill the log.
    assert same
