"""Hostile Pulsar connections without sockets: whole sessions of any commands, bytes changed, both sides lie.

All of the proxy is real but its sockets. A number repeats a case:
`PYTHONPATH=. python tests/kit/pulsar_fuzz.py KIND SEED NUMBER`, as the failure says.
"""

import asyncio
import gc
import sys
import time
from random import Random
from typing import Any, cast

from connection_kit import FakeTransport
from pulsar_proxy_kit import bare, follow
from pulsar_rig import LateUpstream, connect, connected
from sample_kit import sample_of

from enforcer.pulsar.connection import Connection
from enforcer.pulsar.proxy import PulsarProxy
from enforcer.wire.pulsar import frames
from enforcer.wire.pulsar.commands import build
from enforcer.wire.pulsar.schema import BODIES, CLASSES, MESSAGES, new_body

KINDS = ("free", "limited")
_RATE = {"dispatchThrottlingRateInMsg": 50, "dispatchThrottlingRateInByte": 5_000, "ratePeriodInSecond": 1}
_POLICIES: dict[str, dict[str, Any]] = {
    "free": {},
    "limited": {
        "quotas[user=<default>]": {"controller_mutation_rate": 5},
        "resourcegroups.all": {
            "publishRateInMsgs": 100, "publishRateInBytes": 10_000, "dispatchRateInMsgs": 100,
        },
        "tenants.public": {"resourcegroup": "all"},
        "namespaces.public/default": {"subscriptionDispatchRate": _RATE, "dispatchRate": _RATE},
    },
}  # fmt: skip
_NUMBERS = (0, 1, 2, 3, 7, 100, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1)
_TEXTS = (
    "", "t", "t-partition-1", "persistent://public/default/t", "non-persistent://public/default/n",
    "persistent://public/default/t-partition-0", "a/b/c", "persistent://x", "x" * 5_000, "\0", "é/é/é",
    "pulsar://127.0.0.1:1", "pulsar+ssl://h:1", "127.0.0.1:1", "basic", "token", "bob:x",
)  # fmt: skip
_UP = (
    frames.PRODUCER, frames.SUBSCRIBE, frames.SEND, frames.SEND, frames.FLOW, frames.LOOKUP,
    frames.PARTITIONED_METADATA, frames.CLOSE_PRODUCER, frames.CLOSE_CONSUMER, frames.SEEK, frames.REDELIVER,
    frames.UNSUBSCRIBE, frames.CONSUMER_STATS, frames.PING, frames.AUTH_RESPONSE,
)  # fmt: skip
_DOWN = (
    frames.PRODUCER_SUCCESS, frames.SUCCESS, frames.SEND_RECEIPT, frames.SEND_ERROR, frames.MESSAGE,
    frames.MESSAGE, frames.ERROR, frames.LOOKUP_RESPONSE, frames.PARTITIONED_METADATA_RESPONSE,
    frames.CLOSE_PRODUCER, frames.CLOSE_CONSUMER, frames.ACTIVE_CONSUMER_CHANGE, frames.TOPIC_MIGRATED,
    frames.CONSUMER_STATS_RESPONSE, frames.REACHED_END_OF_TOPIC, frames.PING,
    frames.AUTH_CHALLENGE, frames.PONG, frames.CONNECTED,
)  # fmt: skip
_FRAMES = 40


def _filled(message: Any, name: str, draw: Random) -> Any:
    """A message with some of its fields, each with any value that its type has; ids are mostly small."""
    for field, (_, kind) in MESSAGES[name].items():
        if draw.random() < 0.25:
            continue
        for _ in range(draw.choice((0, 1, 2, 9)) if kind.endswith("*") else 1):
            _fill(message, field, kind, draw)
    return message


def _fill(message: Any, field: str, kind: str, draw: Random) -> None:
    base = kind.removesuffix("*")
    value: Any
    if base in MESSAGES:
        target = getattr(message, field)
        _filled(target.add() if kind.endswith("*") else target, base, draw)
        return
    if base == "s":
        value = draw.choice(_TEXTS)
    elif base == "by":
        value = draw.choice(_TEXTS).encode()
    elif base == "b":
        value = draw.random() < 0.5
    else:
        value = draw.choice(_NUMBERS) if draw.random() < 0.2 else draw.randrange(4)
        bits = {"i32": 31, "u32": 32, "i64": 63, "u": 64}[base]
        value = value % (1 << bits) * (-1 if base[0] == "i" and draw.random() < 0.1 else 1)
    if kind.endswith("*"):
        getattr(message, field).append(value)
    else:
        setattr(message, field, value)


def _message(draw: Random) -> bytes:
    """What stands behind a SEND or MESSAGE: metadata and payload, seldom none or another size."""
    metadata = _filled(CLASSES["MessageMetadata"](), "MessageMetadata", draw).SerializeToString()
    size = len(metadata) if draw.random() < 0.95 else draw.choice((0, 5, 2**31, 2**32 - 1))
    checked = b"\x0e\x01crc!" if draw.random() < 0.8 else b""
    entry = b"\x0e\x02\0\0\0\2ab" if draw.random() < 0.1 else b""
    return entry + checked + size.to_bytes(4, "big") + metadata + bytes(draw.choice((0, 10, 1_000)))


def command_of(kind: int, draw: Random) -> bytes:
    """A frame of a kind with anything in it; hostile as often as not."""
    body = _filled(new_body(kind), BODIES[kind], draw)
    has_message = kind in (frames.SEND, frames.MESSAGE) and draw.random() < 0.98
    frame = build(kind, body, _message(draw) if has_message else b"")
    if draw.random() < 0.03:
        return _damaged(frame, draw)
    return frame


def _damaged(frame: bytes, draw: Random) -> bytes:
    data = bytearray(frame)
    for _ in range(draw.choice((1, 1, 4))):
        at = draw.randrange(len(data))
        how = draw.random()
        if how < 0.5:
            data[at] = draw.randrange(256)
        elif how < 0.75:
            del data[at : at + draw.randrange(1, 20)]
        else:
            data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 20)))
        if not data:
            break
    return bytes(data)


def _pieces(data: bytes, draw: Random) -> list[bytes]:
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.choice((0, 0, 1, 5))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


class PulsarFuzz:
    """A proxy whose clients and brokers are this; to be made in an event loop.

    Args:
        kind: which policies are in force.
        seed: of all cases.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed = kind, seed
        self.proxy = PulsarProxy(bare("127.0.0.1:1"))
        self.longest_s = 0.0
        follow(self.proxy.enforcement, _POLICIES[kind])

    @property
    def mistakes(self) -> float:
        """How often a connection met a mistake of ours."""
        return sample_of(
            self.proxy.metrics.registry, "weir_proxy_bad_frames_total", {"reason": "internal"}
        )

    async def play(self, number: int) -> int:
        """One connection; returns how many frames it took. Raises AssertionError on a mistake of ours."""
        draw = Random(f"{self.kind} {self.seed} {number}")
        before = self.mistakes
        client, broker = FakeTransport(), FakeTransport()
        connection = Connection(self.proxy, LateUpstream)
        connection.connection_made(cast(asyncio.Transport, client))
        self._feed(connection.data_received, connect(), draw)
        connection._upstream.connection_made(cast(asyncio.Transport, broker))
        self._feed(connection.upstream_received, connected(), draw)
        frames_sent = 2
        while not connection.over and frames_sent < _FRAMES:
            from_client = draw.random() < 0.5
            kinds = _UP if from_client else _DOWN
            if draw.random() < 0.02:
                kinds = tuple(BODIES)
            feed = connection.data_received if from_client else connection.upstream_received
            run = b"".join(command_of(draw.choice(kinds), draw) for _ in range(draw.choice((1, 1, 2, 5))))
            self._feed(feed, run, draw)
            frames_sent += 1
            if draw.random() < 0.1:
                connection.check(self.proxy.now_ms())
            # What has taken its turn goes on in the next one.
            await asyncio.sleep(0)
        connection.connection_lost(None)
        assert self.mistakes == before, f"{self.kind} {self.seed} {number}: a mistake of ours"
        assert connection not in self.proxy.connections, f"{self.kind} {self.seed} {number}: still known"
        return frames_sent

    def _feed(self, feed: Any, data: bytes, draw: Random) -> None:
        for piece in _pieces(data, draw):
            # How long a collection takes depends on all that stands in memory, the tests' own things too.
            gc.disable()
            begun = time.thread_time()
            feed(piece)
            self.longest_s = max(self.longest_s, time.thread_time() - begun)
            gc.enable()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.WARNING)

    async def repeat(kind: str, seed: int, number: int) -> None:
        """One case again."""
        await PulsarFuzz(kind, seed).play(number)

    asyncio.run(repeat(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
