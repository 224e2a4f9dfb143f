"""A whole proxy without sockets, thousands of hostile connections a second, all in one loop.

All of the proxy is real, its loop's sockets are not: clients and brokers stand in this process. To repeat one
case: `PYTHONPATH=. python tests/kit/fuzz_rig.py KIND SEED NUMBER`, as the failure says.
"""

import asyncio
import gc
import sys
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import accumulate
from random import Random
from typing import Any
from unittest.mock import patch

from fuzz_kit import pieces, requests
from fuzz_sockets import FakeBroker, FakeSocket
from mutation_kit import decision

from enforcer.core import bounds, control
from enforcer.core.feeds import membership
from enforcer.core.settings import ProxySettings
from enforcer.host.server import ProxyConfig
from enforcer.kafka.proxy import KafkaProxy
from streaming.contract.events import PolicyChange

NOBODY = ("127.0.0.1", 1)
KINDS = ("free", "limited", "metered")
_ANYBODY = "quotas[user=<default>]"
_POLICIES: dict[str, dict[str, dict[str, Any]]] = {
    "free": {},
    "limited": {_ANYBODY: {"controller_mutation_rate": 1_000_000}},
    "metered": {
        _ANYBODY: {
            "controller_mutation_rate": 1_000_000, "producer_byte_rate": 1e12, "consumer_byte_rate": 1e12,
        },
        "broker": {"resourceUsagePublishIntervalInSecs": 1},
        "resourcegroups.all": {"publishRateInMsgs": 1_000_000_000, "dispatchRateInBytes": 1_000_000_000_000},
        "tenants.acme": {"resourcegroup": "all"},
    },
}  # fmt: skip
_POLICIES_EVERY = 20
_JUST_GONE_MAX = 10
_LEFT_S = 5.0


class Fault(AssertionError):
    """The proxy did what it must not; says how to repeat it."""


class FuzzLoop(asyncio.SelectorEventLoop):
    """A loop whose servers and connections are not sockets; knows its longest turn.

    Attributes:
        accept: makes the proxy's side of a new client connection, by the port's index.
        upstreams: the broker's ends of connections made, newest last.
        longest_s: processor time of the longest turn, without Python's own collections of garbage: how long
            these take depends on all that stands in memory, the tests' own things among it.
        collecting_s: processor time of the longest collection.
        turn: what it is busy with, set by the rig.
        longest_turn: the same in the longest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.accept: list[Callable[[], asyncio.Protocol]] = []
        self.upstreams: list[FakeSocket] = []
        self.make_broker: Callable[[FakeSocket], FakeBroker] | None = None
        self.longest_s = self.collecting_s = 0.0
        self.turn = self.longest_turn = 0
        self._collecting_since_s = self._collected_s = 0.0
        gc.callbacks.append(self._collecting)

    def close(self) -> None:
        """As any loop."""
        gc.callbacks.remove(self._collecting)
        super().close()

    async def create_server(self, protocol_factory: Any, *args: Any, **more: Any) -> Any:
        """Nobody listens; the factory is kept."""
        self.accept.append(protocol_factory)
        return _Server(more.get("sock"))

    async def create_connection(self, protocol_factory: Any, *args: Any, **more: Any) -> Any:
        """A connection to a broker of the rig's."""
        await asyncio.sleep(0)
        if self.make_broker is None:
            raise ConnectionRefusedError
        protocol = protocol_factory()
        socket = FakeSocket(self, protocol)
        socket.peer = self.make_broker(socket)
        protocol.connection_made(socket)
        self.upstreams.append(socket)
        return socket, protocol

    def _run_once(self) -> None:
        before, self._collected_s = time.thread_time(), 0.0
        super()._run_once()  # type: ignore[misc]
        took = time.thread_time() - before - self._collected_s
        if took > self.longest_s:
            self.longest_s, self.longest_turn = took, self.turn

    def _collecting(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since_s = time.thread_time()
            return
        took = time.thread_time() - self._collecting_since_s
        self._collected_s += took
        self.collecting_s = max(self.collecting_s, took)


class _Server:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def close(self) -> None:
        """As asyncio.Server."""
        if self._socket is not None:
            self._socket.close()


def short_ends() -> ExitStack:
    """Until it is closed a proxy that stops waits for nobody to take its last word: no Kafka is there."""
    short = ExitStack()
    for module, name in ((control, "_STOP_S"), (control, "_FLUSH_S"), (membership, "_STOP_S")):
        short.enter_context(patch.object(module, name, 0.05))
    return short


class Rig(AbstractContextManager[Any]):
    """A proxy of one kind and what watches it; a context manager.

    Args:
        kind: one of KINDS.
        seed: of all chance.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self.kind, self.seed = kind, seed
        self.loop = FuzzLoop()
        self.loop.set_exception_handler(self._caught)
        self.number = 0
        self.frames = 0
        self.sent: list[bytes] = []
        self.told: list[bytes] = []
        self.faults: list[str] = []
        self.seen: weakref.WeakSet[asyncio.Protocol] = weakref.WeakSet()
        self._short = short_ends()
        # Or each session of a client that left unanswered would be waited for.
        self._short.enter_context(patch.object(bounds, "DEPARTED_MAX_MS", 200))
        self.proxy = self.loop.run_until_complete(self._start())

    def __exit__(self, *_: object) -> None:
        self.loop.run_until_complete(self.proxy.stop())
        self.loop.close()
        self._short.close()

    async def _start(self) -> KafkaProxy:
        settings = ProxySettings(
            id="fuzz", start_timeout_ms=0, decision_timeout_ms=2, stop_timeout_ms=100,
            broker_port_base=0,
        )  # fmt: skip
        proxy = KafkaProxy(ProxyConfig(kafka=(NOBODY,), listen=("127.0.0.1", 0), settings=settings))
        self._set_policies(proxy, 1)
        await proxy.start()
        return proxy

    def _set_policies(self, proxy: KafkaProxy, version: int) -> None:
        """The policies of this kind, a little other than before: whoever waits is judged anew."""
        changes = []
        for path, value in _POLICIES[self.kind].items():
            more = {"controller_mutation_burst": 1_000_000 + version} if path == _ANYBODY else {}
            said = {**value, **more}
            changes.append(PolicyChange(id="fuzz", ts=1, at=1, path=path, value=said, version=version))
        policies = proxy.coordinator.policies
        policies.known = lambda: True
        policies.apply(changes)

    def _caught(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        lines = traceback.format_exception(error) if error is not None else []
        self.faults.append(f"{context.get('message')}\n{''.join(lines)}")

    def run(self, frames: int) -> None:
        """So many frames in sessions one after another.

        Raises:
            Fault: an exception, an answer out of turn, a connection left over.
        """
        goal = self.frames + frames
        self.loop.run_until_complete(self._until(goal))

    async def _until(self, goal: int) -> None:
        while self.frames < goal:
            if self.number % _POLICIES_EVERY == 0:
                self._set_policies(self.proxy, self.number + 2)
            await self.session(self.number)
            self.number += 1

    def play(self, stream: bytes) -> None:
        """One client that sends this and waits a while.

        Raises:
            Fault: an exception left the proxy.
        """
        self.loop.run_until_complete(self._play(stream))

    async def _play(self, stream: bytes) -> None:
        rng = Random(0)
        self.sent, self.told = [stream], []
        self.loop.make_broker = lambda socket: FakeBroker(rng, socket, self.told, mood=0.0)
        client = self._come(rng)
        await self._turns(2)
        try:
            client.receive(stream)
            await self._turns(5)
            client.lose(None)
        except Exception as error:  # whatever it is, the proxy let it out
            raise self._fault(self.number, traceback.format_exc()) from error

    def _come(self, rng: Random) -> FakeSocket:
        protocol = rng.choice(self.loop.accept[:2])()
        self.seen.add(protocol)
        client = FakeSocket(self.loop, protocol)
        protocol.connection_made(client)
        return client

    async def session(self, number: int) -> None:
        """One client from its coming to its going; the same each time for the same number."""
        rng = Random(f"{self.seed}/{number}")
        self.loop.turn = number
        self.sent, self.told = [], []
        broken = rng.random()
        self.loop.make_broker = None if broken < 0.02 else lambda socket: FakeBroker(rng, socket, self.told)
        try:
            client, honest = await self._talk(rng)
        except Fault:
            raise
        except Exception as error:  # whatever it is, the proxy let it out
            raise self._fault(number, traceback.format_exc()) from error
        brokers, self.loop.upstreams = self.loop.upstreams, []
        if self.faults:
            raise self._fault(number, self.faults[0])
        if honest and all(one.peer.honest for one in brokers) and not client.in_order():
            raise self._fault(number, "answers came out of turn")

    async def _talk(self, rng: Random) -> tuple[FakeSocket, bool]:
        client = self._come(rng)
        lies = 0.05 if rng.random() < 0.2 else 0.0
        if rng.random() < 0.9:
            # Now and then the first bytes are there before the broker is.
            await self._turns(2)
        frames = requests(rng, lies)
        self.sent = pieces(rng, b"".join(frames))
        came = 0
        for piece in self.sent:
            for _ in range(3):
                if client.reading or client.closed:
                    break
                await self._turns(1)
            if client.closed or not client.reading:
                break
            client.receive(piece)
            came += len(piece)
            if rng.random() < 0.3:
                await self._turns(1)
            if rng.random() < 0.05:
                client.slow(rng.randrange(1, 4))
        await self._end(rng, client)
        self.frames += sum(end <= came for end in accumulate(map(len, frames)))
        return client, not lies

    async def _end(self, rng: Random, client: FakeSocket) -> None:
        way = rng.random()
        if way < 0.6:
            await self._turns(4)
            self._decide(rng)
            await self._turns(3)
        if way < 0.8 and not client.closed:
            client.end_input()
            await self._turns(2)
        client.lose(ConnectionResetError() if way > 0.9 else None)
        await self._turns(2)

    async def _turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def _decide(self, rng: Random) -> None:
        """Some questions are decided, in every way; the others come late."""
        asks = list(self.proxy.coordinator.undecided.pending)
        decisions = [
            decision(
                id=ask.id, proxy=self.proxy.coordinator.proxy_id, subject=ask.subject,
                throttle_time_ms=rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 5, 2**31 - 1)),
                rejected=frozenset(rng.sample(sorted(ask.items), rng.randrange(len(ask.items) + 1))),
            )
            for ask in asks if rng.random() < 0.7
        ]  # fmt: skip
        self.proxy.coordinator.take(decisions)

    def told_of(self, number: int) -> str:
        """How to repeat a session."""
        return f"repeat: PYTHONPATH=. python tests/kit/fuzz_rig.py {self.kind} {self.seed} {number}"

    def _fault(self, number: int, what: str) -> Fault:
        frames = "\n".join(piece.hex()[:4_000] for piece in self.sent)
        answers = "\n".join(answer.hex()[:4_000] for answer in self.told)
        return Fault(f"{what}\n{self.told_of(number)}\nclient sent:\n{frames}\nbroker sent:\n{answers}")

    def settle(self) -> None:
        """Collect what is left over: tasks whose error nobody asked for show then.

        Raises:
            Fault: there are such, or connections are kept.
        """
        gc.collect()
        self.loop.run_until_complete(asyncio.sleep(0.05))
        if self.faults:
            raise self._fault(self.number, self.faults[0])
        # A broker that did not answer is waited for, after its client too; the proxy's tick holds the
        # connection that it looked at last, timers those that have just gone.
        limit_s = time.monotonic() + _LEFT_S
        while self._kept() and time.monotonic() < limit_s:
            self.loop.run_until_complete(asyncio.sleep(0.1))
        if self._kept():
            raise self._fault(self.number, f"connections are kept: {len(self.seen)}")

    def _kept(self) -> bool:
        gc.collect()
        return self.proxy.metrics.traffic.connections > 0 or len(self.seen) > _JUST_GONE_MAX


if __name__ == "__main__":
    with Rig(sys.argv[1], int(sys.argv[2])) as rig:
        rig.loop.run_until_complete(rig.session(int(sys.argv[3])))
        rig.settle()
