"""A real Pulsar for tests, its admin API, and Python clients that note when each message passed."""

import json
import threading
import time
import urllib.error
import urllib.request
from atexit import register
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Self

import pulsar
from threaded import Threaded, until

WAIT_S = 30.0
_names = count(1)


def fresh(stem: str) -> str:
    """A name that no other test of this run uses."""
    return f"{stem}-{next(_names)}"


def names_of(topic: str) -> tuple[str, str]:
    """The domain and `tenant/namespace/topic` of a topic's name, short or not."""
    domain, mark, rest = topic.partition("://")
    if not mark:
        domain, rest = "persistent", topic
    return domain, rest if "/" in rest else f"public/default/{rest}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the admin API said.

    Attributes:
        status: of HTTP.
        body: decoded JSON, or the text if it is none, None if empty.
        headers: names in small letters.
    """

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


class Admin:
    """An admin API: Pulsar's own, or one that stands in front of it.

    Args:
        url: without a slash at its end.
        token: sent as bearer.
    """

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Any request; `path` begins behind `/admin/v2/`, or with a slash for one from the root."""
        url = self.url + (path if path.startswith("/") else f"/admin/v2/{path}")
        data = None if body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **self._headers, **headers}
        request = urllib.request.Request(url, data=data, method=method, headers=given)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                status, text, seen = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                status, text, seen = error.code, error.read(), error.headers
        try:
            content = json.loads(text) if text else None
        except ValueError:
            content = text.decode("utf-8", "replace")
        return Answer(status, content, {name.lower(): value for name, value in seen.items()})

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """The same, which has to succeed; returns the body."""
        answer = self.ask(method, path, body)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body}"
        return answer.body

    def namespace(self, name: str, **policies: Any) -> str:
        """Create `tenant/namespace`, the tenant too if it is not there; returns the name."""
        tenant = name.partition("/")[0]
        if tenant not in self.do("GET", "tenants"):
            clusters = self.do("GET", "clusters")
            self.do("PUT", f"tenants/{tenant}", {"adminRoles": [], "allowedClusters": clusters})
        self.do("PUT", f"namespaces/{name}", policies or None)
        return name

    def topic(self, topic: str, partitions: int = 0) -> str:
        """Create it, not partitioned with 0; returns its full name."""
        domain, rest = names_of(topic)
        if partitions:
            self.do("PUT", f"{domain}/{rest}/partitions", partitions)
        else:
            self.do("PUT", f"{domain}/{rest}")
        return f"{domain}://{rest}"

    def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the persistent topics there, partitions one by one."""
        names: list[str] = self.do("GET", f"persistent/{namespace}")
        return names

    def partitions(self, topic: str) -> int:
        """How many it has; 0: not partitioned, or not there."""
        domain, rest = names_of(topic)
        answer = self.ask("GET", f"{domain}/{rest}/partitions")
        return int(answer.body["partitions"]) if answer.status == 200 else 0

    def exists(self, topic: str) -> bool:
        """Whether it is there, partitioned or not."""
        namespace = names_of(topic)[1].rpartition("/")[0]
        name = "://".join(names_of(topic))
        return name in self.topics(namespace) or self.partitions(topic) > 0

    def stats(self, topic: str) -> dict[str, Any]:
        """Of a topic that is not partitioned, or of one partition."""
        domain, rest = names_of(topic)
        found: dict[str, Any] = self.do("GET", f"{domain}/{rest}/stats")
        return found

    def unload(self, name: str) -> None:
        """Unload a topic, or with `tenant/namespace` all of a namespace; clients then look it up again."""
        if "://" in name or name.count("/") != 1:
            domain, rest = names_of(name)
            self.do("PUT", f"{domain}/{rest}/unload")
        else:
            self.do("PUT", f"namespaces/{name}/unload")

    def delete(self, topic: str) -> None:
        """Delete a topic, partitioned or not, with whatever is connected to it."""
        domain, rest = names_of(topic)
        parts = "/partitions" if self.partitions(topic) else ""
        self.do("DELETE", f"{domain}/{rest}{parts}?force=true")


CLIENTS_LOG = Path(mkdtemp(prefix="weir-pulsar-clients-")) / "log"
"""What all Python clients of this process say went wrong: their library keeps to its first logger."""
register(rmtree, CLIENTS_LOG.parent, ignore_errors=True)


@contextmanager
def client(service: str, **options: Any) -> Iterator[pulsar.Client]:
    """A Python client on `HOST:PORT` or a URL, that tells CLIENTS_LOG what goes wrong.

    Options are pulsar.Client's.
    """
    options = {"logger": pulsar.FileLogger(pulsar.LoggerLevel.Error, str(CLIENTS_LOG)), **options}
    made = pulsar.Client(service if "://" in service else f"pulsar://{service}", **options)
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True)
class Sent:
    """One acknowledged message: when it was given to the client, when its receipt came (monotonic s)."""

    began: float
    ended: float
    id: Any
    data: bytes


@dataclass(frozen=True, slots=True)
class Got:
    """One message at a consumer: when it arrived (monotonic s), and what was in it."""

    at: float
    data: bytes
    topic: str = ""


class Sending:
    """Sends without waiting for receipts and notes each; to be read when `wait` has returned.

    Args:
        producer: the client's.
        messages: what it sends first.
    """

    def __init__(self, producer: pulsar.Producer, messages: Iterable[bytes] = ()) -> None:
        self.producer = producer
        self.sent: list[Sent] = []
        self.failed: list[Any] = []
        self._under_way = 0
        self._changed = threading.Condition()
        for data in messages:
            self.send(data)

    def send(self, data: bytes, **options: Any) -> None:
        """One message; waits only while the client's own queue is full (block_if_queue_full)."""
        began = time.monotonic()

        def done(result: Any, message_id: Any) -> None:
            with self._changed:
                self._under_way -= 1
                if result == pulsar.Result.Ok:
                    self.sent.append(Sent(began, time.monotonic(), message_id, data))
                else:
                    self.failed.append(result)
                self._changed.notify_all()

        with self._changed:
            self._under_way += 1
        self.producer.send_async(data, done, **options)

    def wait(self, limit_s: float = WAIT_S) -> list[Sent]:
        """Until every one is answered; none may have failed. Returns them in the order of their receipts."""
        self.producer.flush()
        with self._changed:
            answered = self._changed.wait_for(lambda: not self._under_way, limit_s)
            assert answered, f"{self._under_way} unanswered"
        assert not self.failed, self.failed[:3]
        return self.sent


class Publishing(Threaded):
    """Sends numbers in a thread until it is stopped.

    Attributes:
        sending: what became of them.
        numbers: how many there are.
        failed: results of those that failed.

    Args:
        producer: the client's.
        rate: at most so many a second.
    """

    def __init__(self, producer: pulsar.Producer, rate: float = 500.0) -> None:
        super().__init__(self._run)
        self.sending, self.numbers, self._rate = Sending(producer), 0, rate
        self.failed = self.sending.failed

    @property
    def acknowledged(self) -> list[int]:
        """Those with a receipt, in the order of that."""
        return [int(one.data) for one in list(self.sending.sent)]

    def start(self) -> Self:
        """Begin."""
        return self.__enter__()

    def stop(self) -> list[int]:
        """End; returns those with a receipt, when all are answered."""
        self.__exit__()
        until(lambda: len(self.acknowledged) + len(self.failed) == self.numbers, WAIT_S, "all answered")
        return self.acknowledged

    def goes_on(self) -> None:
        """Wait until more have a receipt."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before + 5, what="more is acknowledged")

    def _run(self) -> None:
        while not self._stopping.wait(1 / self._rate):
            self.numbers += 1
            self.sending.send(b"%d" % (self.numbers - 1))


def numbered(count: int) -> list[bytes]:
    """Messages that are their numbers, from 0."""
    return [b"%d" % number for number in range(count)]


def send_all(producer: pulsar.Producer, messages: Iterable[bytes]) -> list[Sent]:
    """Send them all and wait for the receipts."""
    return Sending(producer, messages).wait()


def receive(
    consumer: Any,
    *,
    most: int | None = None,
    for_s: float = WAIT_S,
    quiet_s: float | None = None,
    acknowledge: bool = True,
) -> list[Got]:
    """What a consumer, or a reader, gets.

    Args:
        most: ends with so many.
        for_s: ends after so long.
        quiet_s: ends when nothing came for so long.
        acknowledge: each one at once; readers have nothing to acknowledge.
    """
    read: Callable[[int], Any] = getattr(consumer, "read_next", None) or consumer.receive
    acknowledge = acknowledge and hasattr(consumer, "acknowledge")
    got: list[Got] = []
    deadline = time.monotonic() + for_s
    while most is None or len(got) < most:
        left = deadline - time.monotonic()
        left = left if quiet_s is None else min(left, quiet_s)
        if left <= 0:
            break
        try:
            message = read(max(1, int(left * 1000)))
        except pulsar.Timeout:
            break
        got.append(Got(time.monotonic(), message.data(), message.topic_name()))
        if acknowledge:
            consumer.acknowledge(message)
    return got
