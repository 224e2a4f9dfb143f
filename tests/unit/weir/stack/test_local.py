"""What the stack starts for its options, what it says of itself, and the order of its stop."""

import threading
import time
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.collect.settings import BacklogSettings
from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from weir.foreground import StopSignal
from weir.settings import CollectSettings, KafkaSettings, LocalSettings
from weir.stack import local, topics
from weir.stack.local import PULSAR_COLLECTOR, PULSAR_PROXY, Stack
from weir.stack.parts import Change

OWN = "127.0.0.1:6650"


class FakeProcess:
    """A process that only notes what is asked of it."""

    def __init__(self, world: "World", name: str, pid: int) -> None:
        self.name, self.pid, self._world, self.lives = name, pid, world, True

    def alive(self) -> bool:
        """Until it was killed."""
        return self.lives

    def terminate(self) -> None:
        """Noted."""
        self._world.log.append(f"end {self.name}")

    def kill(self) -> None:
        """It is gone."""
        self.lives = False

    def wait(self, limit_s: float) -> bool:
        """Noted."""
        self._world.log.append(f"wait {self.name}")
        return True


class FakePart:
    """A part that is ready at once and says what it was told."""

    def __init__(self, world: "World", name: str, args: list[str], *, command: str, **others: Any) -> None:
        self.name, self.seconds, self._world, self._args = name, 0.0, world, args
        world.words[name], world.commands[name] = args, command
        self.child = FakeProcess(world, name, 100 + len(world.words))
        self.child.lives = False
        self.ready: dict[str, Any] | None = None

    def start(self) -> None:
        """Noted."""
        self._world.log.append(f"start {self.name}")
        self.child.lives = self.name not in self._world.ending
        self._world.ending.discard(self.name)

    def look(self) -> Change:
        """Ready."""
        given = self._args[self._args.index("--listen") + 1] if "--listen" in self._args else None
        self.ready = {"listen": given, "admin": f"http://{given}", "metrics": None}
        return Change.READY

    def kill(self) -> None:
        """Nothing is left."""


class FakeServer:
    """A Kafka or a Pulsar, by the name of its folder."""

    bootstrap, service, admin = "kafka:1", "pulsar:2", "http://pulsar:3"

    def __init__(self, data_dir: Path, **ports: int) -> None:
        self.data_dir = data_dir

    def cluster_id(self) -> str:
        """A name for a folder."""
        return "C/1"


class FakeBroker(FakePart):
    """One of those as a part; what never gets ready is asked to stop."""

    def __init__(self, world: "World", server: FakeServer, **limits: float) -> None:
        super().__init__(world, server.data_dir.name, [], command="")
        self.child.pid = 7 if self.name == "kafka" else 8

    def look(self) -> Change:
        """Ready, as a rule."""
        if self.name not in self._world.unready:
            return super().look()
        self._world.stop.ask()
        return Change.NONE

    def kill(self) -> None:
        """Noted, where it is not the end of a stop in order."""
        if self.ready is None:
            self._world.log.append(f"kill {self.name}")


class World:
    """What was started and stopped, in order, and with which words."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.log: list[str] = []
        self.stop = StopSignal()
        self.ending, self.unready = set[str](), set[str]()
        self.words: dict[str, list[str]] = {}
        self.commands: dict[str, str] = {}
        self._folder = folder
        monkeypatch.setattr(local, "Part", partial(FakePart, self))
        monkeypatch.setattr(local, "Broker", partial(FakeBroker, self))
        monkeypatch.setattr(local, "LocalKafka", FakeServer)
        monkeypatch.setattr(local, "LocalPulsar", FakeServer)
        monkeypatch.setattr(local, "prepare", lambda say, stopping: self.log.append("prepare"))
        monkeypatch.setattr(topics, "ensure_topics", lambda *args, **others: [])
        monkeypatch.setattr(topics, "cluster_id", lambda *args: "C")

    def stack(
        self,
        proxy_id: str = "",
        binary_address: str = "",
        topics_of: KafkaSettings | None = None,
        collect: CollectSettings | None = None,
        backlog: BacklogSettings | None = None,
        starts: bool = True,
        **given: Any,
    ) -> Stack:
        """A stack with these options, started."""
        options = {
            "kafka": None, "pulsar": None, "pulsar_admin": None, "settings": None, "restart": False,
            "listen": ("h", 1), "admin": ("h", 2), "pulsar_listen": ("h", 3), **given,
        }  # fmt: skip
        settings = {
            "kafka": topics_of or KafkaSettings(), "local": LocalSettings(),
            "collect": collect or CollectSettings(), "backlog": backlog or BacklogSettings(),
            "proxy": SimpleNamespace(id=proxy_id), "http": SimpleNamespace(binary_address=binary_address),
        }  # fmt: skip
        args = Namespace(data=self._folder, **options)
        made = Stack(args, None, settings, self.stop, lambda line: None)
        assert made.start() is starts
        return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Nothing is started yet."""
    return World(monkeypatch, tmp_path)


def test_without_a_pulsar_nothing_of_it_is_there(world: World) -> None:
    """Neither in what is started nor in what is said."""
    stack = world.stack()
    assert set(stack.addresses()) == {"proxy", "admin", "kafka", "pids"}
    assert set(stack.addresses()["pids"]) == {"kafka", "job", "job_jvm", "proxy", "admin", "collect"}
    assert "prepare" not in world.log and "--upstream" not in world.words["admin"]
    stack.stop()
    off = BacklogSettings(enabled=False)
    alone = world.stack(collect=CollectSettings(quotas_from_kafka=False), backlog=off)
    assert alone.addresses()["pids"]["collect"] is None
    alone.stop()


def test_the_job_starts_beside_its_broker(world: World) -> None:
    """Where that is ours; and again, if it did not last as long as that took."""
    world.ending.add("job")
    world.stack().stop()
    assert world.log[:4] == ["start job", "start kafka", "start job", "start proxy"]
    assert world.words["job"][world.words["job"].index("--checkpoint") + 1].endswith("/checkpoint/C_1")
    world.log.clear()
    world.stack(kafka="other:9").stop()
    assert world.log[:2] == ["start job", "start proxy"]


def test_a_stop_does_not_wait_for_a_broker_that_starts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, and nobody else is started; what a stop breaks off is no failure."""
    world.unready.add("kafka")
    world.stack(starts=False, pulsar="local")
    assert world.log == ["start job", "start kafka", "kill kafka"]

    def break_off(*_: object) -> None:
        world.stop.ask()
        raise WeirError("stopped")

    world.stop = StopSignal()
    monkeypatch.setattr(local, "prepare", break_off)
    world.stack(starts=False, kafka="h:4", pulsar="local")


def test_a_local_pulsar_is_fetched_started_and_named(world: World) -> None:
    """The admin API passes on to it, and its proxy is a second `weir proxy`."""
    stack = world.stack(pulsar="local")
    assert world.log.index("prepare") < world.log.index("start pulsar") < world.log.index("start proxy")
    said = stack.addresses()
    assert (said["pulsar"], said["pulsar_proxy"]) == ("pulsar:2", "h:3")
    assert said["pulsar_admin"] == "http://pulsar:3"
    for part in stack.parts:
        part.ready = None
    assert not {"kafka", "pulsar"} & stack.metrics_sources().keys(), "of ours"
    assert said["pids"]["pulsar"] == 8 and said["pids"][PULSAR_PROXY] > 100
    assert world.commands[PULSAR_PROXY] == "proxy"
    words = world.words[PULSAR_PROXY]
    assert words[:2] == ["--kafka", "kafka:1"] and words[-4:] == ["--pulsar", "pulsar:2", "--listen", "h:3"]
    words = world.words["admin"]
    assert words[-4:] == ["--upstream", "http://pulsar:3", "--binary-address", "h:3"]
    stack.stop()


def test_lookups_over_http_need_an_address_that_is_known(world: World) -> None:
    """With port 0, or all addresses, it is not, and they are refused; one in the settings holds."""
    for listen in (("h", 0), ("0.0.0.0", 3), ("::", 3)):
        world.stack(pulsar=OWN, pulsar_listen=listen).stop()
        assert "--binary-address" not in world.words["admin"]
    world.stack(pulsar=OWN, binary_address="weir.example:6650").stop()
    assert "--binary-address" not in world.words["admin"]


def test_addresses_of_ipv6_are_passed_on_in_brackets(world: World) -> None:
    """`pulsar://::1:16650` is no URL, and librdkafka finds no port in `::1:19092`."""
    here = dict.fromkeys(("listen", "admin", "pulsar_listen"), ("::1", 19092))
    world.stack(pulsar=OWN, **here).stop()
    for name in ("proxy", "admin", PULSAR_PROXY):
        assert world.words[name][world.words[name].index("--listen") + 1] == "[::1]:19092"


def test_topics_are_made_as_the_settings_say(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever comes first, the job or we."""
    made: list[Cluster] = []
    monkeypatch.setattr(topics, "ensure_topics", lambda cluster, **others: made.append(cluster) or [])
    world.stack(topics_of=KafkaSettings(topic_prefix="w.", topics_kept_ms=7_200_000)).stop()
    assert [(each.topics.decisions, each.topics_kept_ms) for each in made] == [("w.decisions", 7_200_000)]


def test_a_pulsar_that_is_there_is_only_used(world: World) -> None:
    """Its admin API is passed on to only if it was named."""
    stack = world.stack(pulsar=OWN, kafka="other:9")
    said = stack.addresses()
    assert (said["pulsar"], said["pulsar_admin"], said["kafka"]) == (OWN, None, "other:9")
    assert "pulsar" not in said["pids"] and said["pids"]["kafka"] is None
    assert "--upstream" not in world.words["admin"]
    stack.stop()
    assert not any(line.split()[-1] == "pulsar" for line in world.log)


def test_an_admin_api_alone_is_passed_on_to(world: World) -> None:
    """Any HTTP admin API may stand behind ours, without a proxy of Pulsar."""
    stack = world.stack(pulsar_admin="http://other:4")
    assert stack.addresses()["pulsar_admin"] == "http://other:4"
    assert "pulsar_proxy" not in stack.addresses() and PULSAR_PROXY not in world.words
    assert world.words["admin"][-2:] == ["--upstream", "http://other:4"]
    stack.stop()


def test_a_stop_does_not_wait_for_a_kafka_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C was heard half a minute later, when it was given up."""
    answer, begun = threading.Event(), time.monotonic()

    def ensure(*args: object, **others: object) -> list[str]:
        world.stop.ask()
        answer.wait(5)
        raise WeirError("too late")

    monkeypatch.setattr(topics, "ensure_topics", ensure)
    world.stack(starts=False, kafka="h:4").stop()
    answer.set()
    assert time.monotonic() - begun < 2


def test_two_proxies_have_two_names(world: World) -> None:
    """The settings name one, and events of two by one name would be one proxy's."""
    world.stack(pulsar=OWN, proxy_id="p1").stop()
    assert world.words[PULSAR_PROXY][-2:] == ["--id", "p1-pulsar"]
    assert "--id" not in world.words["proxy"]


def test_nobody_is_stopped_whom_another_still_needs(world: World) -> None:
    """Those who ask first, both proxies at the same time, brokers last."""
    stack = world.stack(pulsar="local")
    world.log.clear()
    stack.stop()
    assert world.log == [
        "end admin", "end collect", "end collect_pulsar",
        "wait admin", "wait collect", "wait collect_pulsar",
        "end proxy", "end pulsar_proxy", "wait proxy", "wait pulsar_proxy",
        "end job", "wait job",
        "end kafka", "end pulsar", "wait kafka", "wait pulsar",
    ]  # fmt: skip


def test_collectors_run_where_there_is_something_to_collect(world: World) -> None:
    """Quotas and backlogs in one part; backlogs of Pulsar, which a proxy meters already, in another.

    Neither ends, and the stack with it, as somebody starts another collector of that cluster.
    """
    stack = world.stack(pulsar_admin="http://p:1")
    words = world.words["collect"]
    assert words[0] == "kafka" and words[-3:] == ["--metrics", "127.0.0.1:0", "--stand-by"]
    assert world.commands[PULSAR_COLLECTOR] == "collect"
    words = world.words[PULSAR_COLLECTOR]
    assert words[0] == "pulsar" and words[-4:] == ["--stand-by", "--no-usage", "--admin", "http://p:1"]
    assert PULSAR_COLLECTOR in stack.addresses()["pids"]
    stack.stop()
    no_quotas, no_backlogs = CollectSettings(quotas_from_kafka=False), BacklogSettings(enabled=False)
    for collect, backlog, there in (
        (no_quotas, None, {"collect", PULSAR_COLLECTOR}),
        (None, no_backlogs, {"collect"}),
        (no_quotas, no_backlogs, set()),
    ):
        stack = world.stack(collect=collect, backlog=backlog, pulsar_admin="http://p:1")
        assert {part.name for part in stack.parts} & {"collect", PULSAR_COLLECTOR} == there
        stack.stop()


class Ending:
    """A part whose main thread hears that it has ended, while another one asks for metrics."""

    name = "proxy"

    def __init__(self) -> None:
        self._said: list[dict[str, Any] | None] = [{"metrics": "http://m"}]

    @property
    def ready(self) -> dict[str, Any] | None:
        """Once; then it is forgotten."""
        return self._said.pop() if self._said else None


def test_a_part_that_ends_meanwhile_spoils_no_page_of_metrics(world: World) -> None:
    """All other parts were missing from it, too."""
    stack, ending = world.stack(), Ending()
    stack.stop()
    given: Any = [ending]
    stack.parts = given
    assert stack.metrics_sources() == {"proxy": "http://m"}
