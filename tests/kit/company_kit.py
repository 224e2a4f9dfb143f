"""Several `weir proxy` processes before one broker with a real job, and clients that ask them for topics."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from cluster_kit import address
from confluent_kafka.admin import AdminClient
from job_kit import Job
from path_kit import CutPath
from process_kit import Command, ProxyProcess
from proxy_kit import PolicyWriter, until
from slow_broker_kit import SlowBroker
from stack_kit import read_all
from threaded import Threaded
from wire_client import Closed, WireClient, errors

from streaming.contract.topics import Cluster, Topics
from streaming.laws.mutation.rates import refill
from weir.stack.kafka import HOST, LocalKafka, Sasl, free_port
from weir.stack.topics import ensure_topics

START_S = 90.0
STOP_S = 40.0
"""As terminationGracePeriodSeconds of the manifests."""
REFUSED = 89
"""THROTTLING_QUOTA_EXCEEDED."""
BEHIND_S = 5.0
"""A proxy that knows no decision younger than this admits nothing at once."""
_LOST_S = 0.05
# Both listeners without logins, though the second one is named after them.
_PLAINTEXT = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:PLAINTEXT"
_SKEWED = str(Path(__file__).with_name("skewed_proxy.py"))


@dataclass(frozen=True, slots=True)
class Admitted:
    """What was let in: when, ms since the epoch, and how many mutations."""

    at: int
    mutations: int


class Company:
    """Broker, job, and proxies by name; a context manager that leaves nothing behind.

    Attributes:
        proxies: those that run.
        job: it runs.
        path: by which a proxy that stands apart reaches Weir's topics, and it alone; or by which traffic
            goes.
    """

    def __init__(self, folder: Path, path: SlowBroker | None = None, job_prefix: Sequence[str] = ()) -> None:
        self.folder = folder
        self.topics = Topics()
        self.proxies: dict[str, ProxyProcess] = {}
        self.path: Any = path or CutPath()
        port = free_port()
        self.kafka = LocalKafka(
            folder / "kafka",
            port=port,
            sasl=Sasl(),
            properties={
                "listener.security.protocol.map": _PLAINTEXT,
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port},SASL://{self.path.address}",
            },
        )
        self.path.to = address(self.kafka.sasl_bootstrap)
        self._job_prefix = job_prefix
        self._ports: dict[str, tuple[str, str]] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.path)
            starting.enter_context(self.kafka)
            ensure_topics(Cluster(self.kafka.bootstrap, self.topics))
            self._policies = PolicyWriter(self.kafka.bootstrap, self.topics)
            self.job = Job(self.folder, self.kafka.bootstrap, prefix=self._job_prefix)
            # Whichever it is by then.
            starting.callback(lambda: self.job.close())
            self.job.start()
            starting.callback(self._kill_all)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def limit(self, client_id: str, rate: float, burst: float) -> str:
        """Give ANONYMOUS with this client-id a quota of its own; returns its subject."""
        quota = {"controller_mutation_rate": rate, "controller_mutation_burst": burst}
        self._policies.put(f"quotas[user=ANONYMOUS,client-id={client_id}]", quota)
        return f"user=ANONYMOUS,client-id={client_id}"

    def put(self, path: str, value: dict[str, Any] | None) -> None:
        """Set or remove a policy."""
        self._policies.put(path, value)

    def launch(
        self, name: str, *, ahead_ms: int = 0, apart: bool = False, traffic_by_path: bool = False,
        prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Start a proxy, or start it again where it was.

        Args:
            name: its id.
            ahead_ms: how far its clock is off.
            apart: it reads and writes Weir's topics by `path`.
            traffic_by_path: all else goes that way.
            prefix: words before the command, such as another program that runs it.
        """
        listen, metrics = self._ports.setdefault(name, (f"{HOST}:{free_port()}", f"{HOST}:{free_port()}"))
        settings: dict[str, Any] = {"proxy": {"broker_port_base": 0}}
        if apart:
            settings["kafka"] = {"client": {"bootstrap.servers": self.path.address}}
        if traffic_by_path:
            settings["kafka"] = {"client": {"bootstrap.servers": self.kafka.bootstrap}}
        kafka = self.path.address if traffic_by_path else self.kafka.bootstrap
        words = ("proxy", "--kafka", kafka, "--id", name, "--listen", listen, "--metrics", metrics)
        module = (_SKEWED, str(ahead_ms)) if ahead_ms else ("-m", "weir")
        started = Command(self.folder / name, *words, prefix=prefix, module=module, **settings)
        self.proxies[name] = ProxyProcess(started.process, listen, metrics, started.log)

    def kill(self, name: str) -> None:
        """kill -9 one."""
        process = self.proxies.pop(name).process
        process.kill()
        process.wait(5)

    def stop(self, name: str) -> int:
        """SIGTERM for one; its exit status."""
        process = self.proxies.pop(name).process
        process.terminate()
        return process.wait(STOP_S)

    def only(self, *names: str, **ahead_ms: int) -> None:
        """Have just these proxies run, begun anew with these clocks, and know each other."""
        self._kill_all()
        for name in names:
            self.launch(name, ahead_ms=ahead_ms.get(name, 0))
        self.await_all()

    def await_all(self) -> None:
        """Wait until all let clients in and have heard of each other."""
        for name, proxy in self.proxies.items():
            until(proxy.serves, START_S, f"proxy {name}")
        for name, proxy in self.proxies.items():
            until(
                lambda proxy=proxy: proxy.metric("proxies_alive") == len(self.proxies),
                START_S,
                f"{name} has heard of all {len(self.proxies)}, and of no others",
            )

    def admitted(self, subject: str) -> list[Admitted]:
        """What was let in so far, as `weir.decisions` says, in order of the decisions' own times.

        Without what was given back: its client had been refused before the decision came.
        """
        found = {}
        for made in self._read(self.topics.decisions, subject):
            if made["type"] == "admission" and made["mutations"]:
                found[made["id"]] = Admitted(made["ts"], made["mutations"])
        for event in self._read(self.topics.requests, subject):
            if event["type"] == "refund":
                found.pop(event["of"], None)
        return sorted(found.values(), key=lambda one: one.at)

    def requests(self, subject: str) -> list[dict[str, Any]]:
        """The request events of a subject so far."""
        return [event for event in self._read(self.topics.requests, subject) if event["type"] == "request"]

    def remove_topics(self, prefix: str) -> None:
        """Delete what clients made, so that the broker does not fill up."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
        if names:
            for done in admin.delete_topics(names).values():
                done.result(60)

    def _read(self, topic: str, subject: str) -> Iterator[dict[str, Any]]:
        said = map(orjson.loads, read_all(self.kafka.bootstrap, topic))
        return (one for one in said if one.get("subject") == subject)

    def _kill_all(self) -> None:
        for name in list(self.proxies):
            self.kill(name)


def most_above(admitted: Sequence[Admitted], rate: float, burst: float) -> float:
    """The most that was ever let in above rate x time + burst, over any stretch of time."""
    left, last, above = burst, admitted[0].at, 0.0
    for one in admitted:
        left, last = refill(left, rate, burst, one.at - last) - one.mutations, one.at
        above = max(above, -left)
    return above


def bound(proxies: int, rate: float, burst: float) -> float:
    """What several may let in above rate x time + burst, of items of one mutation (docs/laws.md)."""
    return proxies + 1 + (proxies - 1) / proxies * (burst + rate * BEHIND_S)


def let_in(admitted: Sequence[Admitted], from_ms: int, to_ms: int) -> int:
    """Mutations that were let in between two times."""
    return sum(one.mutations for one in admitted if from_ms < one.at <= to_ms)


class Client(Threaded, ABC):
    """A thread that asks for a topic at a time.

    Attributes:
        admitted: when an answer without an error came, ms since the epoch.
        refused: answers with error 89.
        failed: answers with another error.
        lost: requests whose connection ended, or that could not be made.
        took_ms: of every answer.
    """

    def __init__(self, name: str, client_id: str, bootstrap: str) -> None:
        super().__init__(self._run, name=f"{client_id} at {name}")
        self.name, self.client_id, self.bootstrap = name, client_id, bootstrap
        self.admitted: list[Admitted] = []
        self.refused = self.failed = self.lost = 0
        self.took_ms: list[float] = []
        self._count = 0

    def figures(self) -> str:
        """What it saw, in words."""
        if not self.took_ms:
            return f"{self.client_id} at {self.name}: no answer, {self.lost} lost"
        took = sorted(self.took_ms)
        p50, p99 = (took[len(took) * part // 100] for part in (50, 99))
        return (
            f"{self.client_id} at {self.name}: {len(self.admitted)} admitted, {self.refused} refused, "
            f"{self.failed} failed, {self.lost} lost; "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {took[-1]:.1f} ms"
        )

    def _ask(self, client: WireClient) -> None:
        topic = f"{self.client_id}-{self.name}-{self._count}"
        self._count += 1
        begun = time.monotonic()
        code = errors(client.create({topic: 1}))[topic]
        self.took_ms.append(1000 * (time.monotonic() - begun))
        if code == 0:
            self.admitted.append(Admitted(time.time_ns() // 1_000_000, 1))
        elif code == REFUSED:
            self.refused += 1
        else:
            self.failed += 1

    @abstractmethod
    def _run(self) -> None:
        """Ask until it is to stop, in its thread."""


class Offender(Client):
    """Asks without pause, whatever it is told."""

    def _run(self) -> None:
        while not self._stopping.is_set():
            # A connection that was told to wait is not read: a client in a hurry makes another one.
            try:
                with WireClient(self.bootstrap, self.client_id) as client:
                    self._ask(client)
            except (Closed, OSError):
                self.lost += 1
                self._stopping.wait(_LOST_S)


class Modest(Client):
    """Asks so often, on one connection.

    Args:
        every_s: seconds between two requests.
    """

    def __init__(self, name: str, client_id: str, bootstrap: str, every_s: float) -> None:
        super().__init__(name, client_id, bootstrap)
        self._every_s = every_s

    def _run(self) -> None:
        while not self._stopping.is_set():
            with suppress(Closed, OSError), WireClient(self.bootstrap, self.client_id) as client:
                while not self._stopping.wait(self._every_s):
                    self._ask(client)
                return
            self.lost += 1
            self._stopping.wait(_LOST_S)
