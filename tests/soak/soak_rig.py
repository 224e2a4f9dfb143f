"""One whole stack whose parts can be killed, each with relays of its own to brokers and clients."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import yaml
from confluent_kafka import Consumer, TopicPartition
from proxy_kit import PolicyWriter
from soak_clients import Bad, Crowd
from soak_counts import Counts, slots
from soak_disks import fill, forbid_files, let_go, make_read_only, small_disk
from soak_flights import CountedLink
from soak_history import Recorder, now_ms
from soak_kafka import BROKERS, Brokers
from soak_links import Link
from soak_processes import Seen, below
from soak_pulsar import Pulsar, answers
from soak_schedule import KILLS, LIMITING, LINKS, PROXIES, PULSAR, Fault
from wire_client import Closed, WireClient

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster, Topics
from streaming.kafka_io.policy_topic import Update
from streaming.kafka_io.policy_turn import change_policies
from weir.stack.kafka import HOST, free_port, port_is_free
from weir.stack.parts import Change, Part
from weir.stack.process import Child
from weir.stack.topics import ensure_topics

OUTSIDE = "127.0.0.2"
"""Where relays before the proxies listen, on the proxies' own ports: the address that clients are told."""
START_S, STOP_S, GONE_S = 300.0, 20.0, 5.0
FREE_S = 15.0
"""Half of the time after which a proxy gives a slot back by itself."""
CHECKPOINT = "checkpoint"
BAD_CLIENTS = 200
IDLE_CLIENTS = 5_000
AHEAD_MS = {"two": 700}
"""How far the clock of a part's host is ahead of all others."""
_SKEWED = str(Path(__file__).parents[1] / "kit" / "skewed_proxy.py")
_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to whoever connects: a part finds its own free whenever it is back."""
CHANGED = ({"controller_mutation_rate": 0.2}, {"controller_mutation_rate": 0.4})
_LOOK_S, _ANSWER_S, _LAST_LOOK_S, CHANGE_S = 1.0, 2.0, 5.0, 20.0
"""How long a part may take to say something: who is stopped is not waited for."""
_READY_PART = dict.fromkeys(("checkpoint", "jvm", "worker", "job-broker"), "job")


class Rig:
    """Brokers, job, proxies, admin API and collector; a context manager that leaves nothing behind.

    Its methods are called from one thread: see weir.stack.process.Child.

    Args:
        folder: for all that they keep.
        told: takes what was seen.
        say: takes lines for people.
    """

    def __init__(self, folder: Path, told: Recorder, say: Callable[[str], None]) -> None:
        self._folder, self._told, self._say = folder, told, say
        self.topics = Topics()
        self.links: dict[str, list[Link]] = {}
        behind: list[dict[int, int]] = [{} for _ in range(BROKERS)]
        for name in (one for one in LINKS if "broker" in one):
            self.links[name] = [self._link(name, at) for at in range(BROKERS)]
            for ports, link in zip(behind, self.links[name], strict=True):
                ports[link.to[1]] = link.listens[1]
        self.kafka = Brokers(folder / "kafka", behind)
        self.checkpoint = folder / CHECKPOINT
        self.metrics: dict[str, str] = {}
        self.parts = {"job": self._job(), "admin": self._admin(), "collect": self._collect()}
        self.reached: dict[str, str] = {}
        for name in PROXIES:
            self.parts[name] = self._proxy(name)
        self.pulsar, self.pulsar_at = Pulsar(folder / "pulsar"), f"{HOST}:{free_row(1)}"
        self.parts["pulsar-proxy"] = self._pulsar_proxy()
        self._ended: dict[str, Part] = {}
        self._held: set[str] = set()
        self._killed: set[int] = set()
        self._counts = Counts(told)
        self._seen = Seen()
        self.running = ExitStack()

    def _link(self, name: str, at: int) -> Link:
        ends = (HOST, 0), (HOST, free_port())
        if not name.startswith("broker-"):
            return Link(*ends)

        def note(begun: int, ended: int, over: bool) -> None:
            self._told.note("flight", broker=f"broker-{at + 1}", begun=begun, ended=ended, over=over)

        return CountedLink(*ends, note)

    def _relay(self, link: str) -> str:
        return ",".join("{}:{}".format(*one.listens) for one in self.links[link])

    def _part(self, name: str, command: str, *words: str, kafka: str) -> Part:
        self.metrics[name] = f"{HOST}:{free_port()}"
        common = ["--kafka", kafka, "--metrics", self.metrics[name]]
        ahead = AHEAD_MS.get(name)
        return Part(
            name, [*words, *common], command=command, log=self._folder / "logs" / f"{name}.log",
            program=("-m", "weir") if ahead is None else (_SKEWED, str(ahead)),
            run_dir=self._folder / "run", start_s=START_S, alone=True,
        )  # fmt: skip

    def _job(self) -> Part:
        words = ("--checkpoint", str(self.checkpoint / "at"), "--log-dir", str(self._folder / "logs"))
        return self._part("job", "job", *words, kafka=self._relay("job-broker"))

    def _admin(self) -> Part:
        return self._part("admin", "admin", "--listen", f"{HOST}:0", kafka=self.kafka.bootstrap)

    def _collect(self) -> Part:
        return self._part("collect", "collect", "kafka", kafka=self.kafka.bootstrap)

    def _proxy(self, name: str) -> Part:
        # The port of clients, then one for each broker.
        listen = free_row(1 + BROKERS)
        settings = self._folder / f"{name}.yaml"
        own = {"broker_port_base": listen, "decision_timeout_ms": 5_000, "on_late_decision": "reject"}
        settings.write_text(yaml.safe_dump({"proxy": own}))
        self.links[f"client-{name}"] = [
            Link((OUTSIDE, port), (HOST, port)) for port in range(listen, listen + 1 + BROKERS)
        ]
        self.reached[name] = f"{OUTSIDE}:{listen}"
        words = ("--id", name, "--listen", f"{HOST}:{listen}", "--advertise", OUTSIDE)
        kafka = self._relay(f"broker-{name}")
        return self._part(name, "proxy", *words, "--settings", str(settings), kafka=kafka)

    def _pulsar_proxy(self) -> Part:
        words = ("--id", "pulsar-proxy", "--listen", self.pulsar_at, "--pulsar", self.pulsar.service)
        return self._part("pulsar-proxy", "proxy", *words, kafka=self.kafka.bootstrap)

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for link in (one for links in self.links.values() for one in links):
                starting.enter_context(link)
            starting.callback(self.kafka.stop)
            self.kafka.start()
            starting.callback(self.pulsar.stop)
            self.pulsar.start()
            ensure_topics(Cluster(self.kafka.bootstrap, self.topics))
            self.policies = PolicyWriter(self.kafka.bootstrap, self.topics)
            self.checkpoint.mkdir()
            self.small_disk = small_disk(self.checkpoint)
            if self.small_disk:
                starting.callback(let_go, self.checkpoint)
            starting.callback(self._end)
            self.running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.close()

    def start(self) -> None:
        """All parts, until they are ready."""
        for part in self.parts.values():
            part.start()
        every = (*self.parts, "kafka", "pulsar")
        if self.await_that(lambda: all(map(self.there, every)), "all parts", 2 * START_S) is None:
            raise WeirError(f"not all parts have started; see {self._folder / 'logs'}")

    def await_that(self, true: Callable[[], bool], what: str, limit_s: float) -> float | None:
        """Look after the parts until something is true; returns how long that took, None: over the limit."""
        begun = time.monotonic()
        while not true():
            if time.monotonic() - begun > limit_s:
                self._say(f"{what}: not within {limit_s:.0f} s")
                return None
            self.look()
            time.sleep(0.1)
        return time.monotonic() - begun

    def note_slots(self) -> None:
        """Note what is taken of the proxies' slots, when no client is left: soon nothing."""
        found: dict[str, tuple[float, float] | None] = {}

        def free() -> bool:
            found.update({name: slots(self.metrics[name], _LAST_LOOK_S) for name in LIMITING})
            return all(one == (0, 0) for one in found.values())

        self.await_that(free, "all slots free", FREE_S)
        for name, one in found.items():
            if one is not None:
                self._told.note("slots", part=name, taken=one[0], waiting=one[1])

    def quiet(self) -> None:
        """All but broker and job end, so that nothing new is asked, nor probed."""
        for name in (*LIMITING, "admin", "collect"):
            part = self._ended[name] = self.parts.pop(name)
            self._told.note("stopped", part=name, at=now_ms())
            if not part.child.stop(STOP_S):
                self._say(f"{name} did not stop in time")

    def look(self) -> None:
        """Start again what has ended."""
        for broker in self._brokers():
            held = "cluster" in self._held and broker in self.kafka.children
            if not broker.alive() and not held:
                if broker.pid not in self._killed:
                    self._told.note("ended", part=broker.name, pid=broker.pid, at=now_ms(), why="")
                broker.start()
        for name, part in ((name, part) for name, part in self.parts.items() if name not in self._held):
            change = part.look()
            if change in (Change.DIED, Change.LATE):
                self._told.note("ended", part=name, pid=part.child.pid, at=now_ms(), why=part.why(3))
                part.kill()
                time.sleep(0.5)
                part.start()

    def _brokers(self) -> list[Child]:
        return [*self.kafka.children, *self.pulsar.children]

    def there(self, target: str) -> bool:
        """Whether a part does its work, as far as can be seen from outside."""
        if target == "kafka":
            return self.kafka.whole()
        if target in PULSAR:
            one = self.pulsar
            return one.whole(_ANSWER_S) if target == "pulsar" else answers(self.pulsar_at, _ANSWER_S)
        if target in PROXIES:
            try:
                with WireClient(self.reached[target]) as client:
                    return bool(client.metadata([], limit_s=_ANSWER_S).brokers)
            except (Closed, OSError):
                return False
        return self.parts[_READY_PART.get(target, target)].ready is not None

    def decided(self) -> int:
        """How many decisions there are; -1: Kafka does not say."""
        consumer = Consumer({"bootstrap.servers": self.kafka.bootstrap, "group.id": "none", "log_level": 0})
        try:
            place = TopicPartition(self.topics.decisions, 0)
            return int(consumer.get_watermark_offsets(place, timeout=5)[1])
        except Exception:  # noqa: BLE001  # the client's errors have no common name; it is asked again
            return -1
        finally:
            consumer.close()

    def sample(self) -> None:
        """Note what each process takes, and what proxies count."""
        for name, pid in [*self._processes(), *((one.name, one.pid) for one in self._brokers())]:
            with suppress(OSError, IndexError):
                rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
                descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                self._told.note("sample", part=name, pid=pid, at=now_ms(), rss=rss, descriptors=descriptors)
        for name in LIMITING:
            self._count(name, _LOOK_S)

    def _count(self, name: str, limit_s: float) -> None:
        # Where its metrics are is known before it is ready, and it may let clients in long before.
        self._counts.look(name, self.parts[name].child.pid, self.metrics[name], limit_s)

    def _processes(self) -> list[tuple[str, int]]:
        """Of all parts, with what is below them: JVM and workers."""
        found = []
        for name, part in self.parts.items():
            pid = part.child.pid
            found += [(name, pid), *((f"below {name}", one) for one in below(pid))]
        for name, pid in found:
            self._seen.add(name, pid)
        return found

    def pids(self, target: str, draw: float) -> list[int]:
        """The processes that are meant: all brokers, or one of them by draw."""
        if target == "cluster":
            return self.kafka.pids
        if target == "kafka":
            return [self.kafka.pids[int(draw * BROKERS)]]
        if target == "pulsar":
            return self.pulsar.pids
        if target == "controller":
            return [self.kafka.leader().pid]
        if target == "jvm":
            return [int((self.parts["job"].ready or {})["jvm_pid"])]
        if target == "worker":
            return [below(*self.pids("jvm", draw))[-1]]
        return [self.parts[target].child.pid]

    def make(self, fault: Fault, draw: float) -> tuple[int | None, Callable[[], object]]:
        """Do it; returns whom it killed, and what ends it.

        Args:
            fault: what is done, and to whom.
            draw: 0 to 1, where there is something to choose.

        Raises:
            OSError, LookupError: who is meant is not there.
            WeirError: Kafka did not take a changed quota.
        """
        if fault.target in self._held:
            raise LookupError("it is down")
        if fault.what in KILLS:
            if fault.target in LIMITING:
                self._count(fault.target, _LAST_LOOK_S)
            if fault.target == "job" and not self.there("job"):
                raise LookupError("it has not started yet")
            pids = self.pids(fault.target, draw)
            self._killed.update(pids)
            if fault.what == "down":
                self._held.add(fault.target)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            return pids[0], lambda: self._held.discard(fault.target)
        return None, self._disturbed(fault, draw)

    def _disturbed(self, fault: Fault, draw: float) -> Callable[[], object]:
        if fault.what == "stop":
            pids = self.pids(fault.target, draw)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            return lambda: [_continue(pid) for pid in pids]
        if fault.target in LINKS:
            return self._disturb(self.links[fault.target], fault.what)
        if fault.what == "policy":
            update = Update(path="quotas[user=ANONYMOUS,client-id=changed]", value=CHANGED[round(draw)])
            home = Cluster(self.kafka.bootstrap, self.topics)
            change_policies(home, lambda _log: [update], origin="apply", timeout_s=CHANGE_S)
            return lambda: None
        if fault.what in ("clients", "crowd"):
            # Not by the relay: it would make an end of each reset, and hold as many connections once more.
            to = self.reached[fault.target].replace(OUTSIDE, HOST)
            more = Bad(to, BAD_CLIENTS) if fault.what == "clients" else Crowd(to, IDLE_CLIENTS)
            more.__enter__()
            return lambda: more.__exit__()
        if fault.target == "kafka":
            return forbid_files(*self.pids("kafka", draw))
        return fill(self.checkpoint) if fault.what == "full" else make_read_only(self.checkpoint)

    def _disturb(self, links: list[Link], what: str) -> Callable[[], object]:
        for link in links:
            link.make(what)
        return lambda: [link.mend() for link in links]

    def _end(self) -> None:
        self._processes()
        for link in (one for links in self.links.values() for one in links):
            link.mend()
        for name, part in self.parts.items():
            part.child.terminate()
            if not part.child.wait(STOP_S):
                self._say(f"{name} did not stop in time")
        # What is below a part ends soon after it.
        begun = time.monotonic()
        while (left := self._seen.left()) and time.monotonic() - begun < GONE_S:
            time.sleep(0.1)
        for name, pid in left:
            self._told.note("left", part=name, pid=pid)
        for part in (self._ended | self.parts).values():
            part.kill()
        self._seen.kill()


def free_row(count: int) -> int:
    """The first of so many free ports, one behind the other, on both addresses."""
    while True:
        first = random.choice(_PORTS)
        ports = range(first, first + count)
        if all(port_is_free(port, host) for port in ports for host in (HOST, OUTSIDE)):
            return first


def _continue(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)
