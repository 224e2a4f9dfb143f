"""A proxy and a decider in threads of the test, and ways to ask them things."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import orjson
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from mutation_kit import own
from sample_kit import sample_of
from threaded import Threaded, until

from enforcer.host.server import ProxyConfig
from enforcer.kafka.proxy import KafkaProxy
from enforcer.laws.mutation.request import Request
from enforcer.laws.shares.meter import Meter
from streaming.columns.records import Records
from streaming.contract.topics import Topics
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step

WAIT_S = 20.0


class ProxyThread:
    """A proxy with an event loop in a thread."""

    def __init__(self, config: Any) -> None:
        self.config: ProxyConfig = config
        self._made: KafkaProxy | None = None
        self.error: BaseException | None = None
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="proxy under test")

    @property
    def proxy(self) -> KafkaProxy:
        """The proxy, once it was made."""
        assert self._made is not None
        return self._made

    @property
    def bootstrap(self) -> str:
        """Where clients connect to."""
        return "{}:{}".format(*self.proxy.listen)

    def sample(self, name: str, **labels: str) -> float:
        """A metric's value, see sample_of."""
        return sample_of(self.proxy.metrics.registry, name, labels)

    def metric(self, name: str, **labels: str) -> float:
        """The same of `weir_proxy_...`."""
        return self.sample(f"weir_proxy_{name}", **labels)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return self

    def waiting(self, client_id: str) -> list[Request]:
        """The requests of a client that wait for their decision."""
        return [ask for ask in self.proxy.coordinator.undecided.pending if ask.client_id == client_id]

    def await_part(self, part: float) -> None:
        """Wait until so much of the limit of a group is its own, as long as nobody has a share of it."""
        meter = self._meter()
        until(lambda: meter.newcomers.part("", meter.clock.steady_ms()) == part, what=f"{part} of each limit")

    def balance(self, client_id: str) -> float:
        """What ANONYMOUS has with this client-id now, as this proxy knows it."""
        coordinator = self.proxy.coordinator
        quota = coordinator.quota("ANONYMOUS", client_id)
        assert quota is not None and coordinator.reading is None
        now_ms = time.time_ns() // 1_000_000
        dry = own(f"{client_id}-look", now_ms, {"x": 1}, dry=True)
        answer = coordinator.local_decisions.decide(quota, *dry)
        assert answer is not None
        return answer.tokens

    def _meter(self) -> Meter:
        return self.proxy.meter

    @property
    def entries(self) -> Mapping[str, Any]:
        """The policies that it meters by."""
        return self._meter()._policies.entries

    def call(self, function: Callable[[], object]) -> None:
        """Run something in the proxy's loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function)

    def do(self, work: Callable[[], None]) -> None:
        """The same, to its end."""
        done = threading.Event()
        self.call(lambda: (work(), done.set()))
        assert done.wait(10)

    def begin_stop(self) -> None:
        """Ask it to stop; leaving the context waits for that."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def __exit__(self, *_: object) -> None:
        self.begin_stop()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _make(self) -> Any:
        return KafkaProxy(self.config)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001  # handed to the test
                self.error = error
        self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._made = self._make()
        await self._made.start()
        self._started.set()
        await self._stop.wait()
        await self._made.stop()


class Decider(Threaded):
    """The job's place taken by one thread that runs a real law over the real topics.

    Args:
        bootstrap: the cluster.
        topics: their names.
        law: mutation, or shares: then it also writes a tick each second, as the job does.
        client: librdkafka properties of its connections.
    """

    def __init__(
        self, bootstrap: str, topics: Topics, law: str = "mutation", client: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(self._run, name="decider", limit_s=WAIT_S)
        self._properties = {**(client or {}), "bootstrap.servers": bootstrap, "log_level": "0"}
        self._topics = topics
        self._law = law
        self._source = topics.requests if law == "mutation" else topics.usage
        self._working = threading.Event()
        self._working.set()
        self._idle = threading.Event()
        self.events: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The job is down until the context ends, or `resume` is called."""
        self._working.clear()
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """The job is back."""
        self._working.set()

    def __enter__(self) -> Self:
        self._warm_up()
        return super().__enter__()

    def _warm_up(self) -> None:
        """Compile the law, as the job's workers do: in a new folder on a busy machine that takes minutes."""
        warm_up = LAWS.by_name[self._law].warm_up
        context = StepContext(initial=warm_up.policies, processed_ts=0, fail_fast=True)
        for events in warm_up.batches:
            none = [0] * len(events)
            values = [orjson.dumps(event) for event in events]
            records = Records(topic=[""] * len(none), partition=none, offset=none, ts=none, value=values)
            step(self._law, 0, None, records, context)

    def _run(self) -> None:
        consumer = Consumer({
            **self._properties, "group.id": f"weir-decider-{self._law}", "fetch.wait.max.ms": "100",
            "enable.auto.commit": "false",
        })  # fmt: skip
        producer = Producer({**self._properties, "linger.ms": "0"})
        consumer.assign([TopicPartition(name, 0, 0) for name in (self._topics.policies, self._source)])
        # The job learns the brokers' clock from its ticks; by events alone a first one is never late.
        producer.produce(self._source, b'{"type":"tick","brokers_ahead_ms":0}')
        body: bytes | None = None
        next_tick = time.monotonic()
        while not self._stopping.is_set():
            if self._law == "shares" and time.monotonic() >= next_tick:
                producer.produce(self._source, b'{"type":"tick"}')
                next_tick += 1.0
            message = consumer.poll(0.05)
            batch = []
            while message is not None:
                if message.error() is None:
                    batch.append(message)
                message = consumer.poll(0)
            while not self._working.is_set() and not self._stopping.is_set():
                time.sleep(0.01)
            if batch:
                body = self._decide(body, batch, producer)
        producer.flush(2)
        consumer.close()

    def _decide(self, body: bytes | None, batch: list[Any], producer: Producer) -> bytes | None:
        records = Records()
        for message in batch:
            records.topic.append(message.topic())
            records.partition.append(message.partition())
            records.offset.append(message.offset())
            records.ts.append(message.timestamp()[1])
            records.value.append(message.value())
            if message.topic() == self._source:
                self.events.append(orjson.loads(message.value()))
        context = StepContext(processed_ts=time.time_ns() // 1_000_000, fail_fast=True)
        body, outputs = step(self._law, 0, body, records, context)
        for sink, key, value in zip(*map(outputs.listed, ("sink", "key", "value")), strict=True):
            topic = self._topics.decisions if sink == "decisions" else self._topics.deadletter
            producer.produce(topic, key=key, value=value)
            self.decisions.append(orjson.loads(value))
        producer.poll(0)
        return body


class PolicyWriter:
    """Publishes policies that are in force at once."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "0", "log_level": "0"})
        self._topic = topics.policies
        self._version = 1

    def put(self, path: str, value: dict[str, Any] | None, delay_ms: int = 0) -> int:
        """Set or remove one entry; returns the time from which it is in force."""
        self._version += 1
        now = time.time_ns() // 1_000_000 + delay_ms
        event = {
            "type": "policy", "id": f"policy-{self._version}", "ts": now, "effective_ts": now,
            "version": self._version, "path": path, "value": value, "origin": "apply",
        }  # fmt: skip
        self._producer.produce(self._topic, key=path, value=orjson.dumps(event))
        assert self._producer.flush(WAIT_S) == 0
        return now

    def group(self, name: str, **limits: Any) -> str:
        """A resource group, and a namespace of the same name in it; the name of a topic there."""
        self.put(f"resourcegroups.{name}", limits)
        self.put(f"namespaces.acme/{name}", {"resourcegroup": name})
        return f"acme.{name}.t"

    def ungroup(self, name: str) -> None:
        """Neither is there any more."""
        for path in (f"namespaces.acme/{name}", f"resourcegroups.{name}"):
            self.put(path, None)
