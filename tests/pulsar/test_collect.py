"""The collector's limits on a real Pulsar, measured at Python clients.

Kafka and the job are left out but in the last test: reports go to a list, shares come by a call. What that
one measures is printed; docs/pulsar/without_proxy.md has it.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from company_kit import Company
from exam_kit import Say
from process_kit import Command
from proxy_kit import until
from publishing_clients import Driving, drive_pulsar
from pulsar_backlog_rig import InLoop
from pulsar_kit import Admin, client, fresh

from streaming.collect.pulsar.collector import Collector, Round
from streaming.collect.pulsar.limits import Kind, Rates, Slot
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.notes import Notes
from streaming.collect.pulsar.push import Pusher, Result
from streaming.collect.settings import PulsarCollectSettings, Source
from streaming.policy.policy_set import PolicySet
from weir.stack.pulsar import LocalPulsar

LIMIT = 100


class Rig(InLoop):
    """A collector on a real Pulsar, round by round."""

    def __init__(self, url: str, entries: dict[str, Any], **settings: Any) -> None:
        super().__init__(url)
        self.entries = entries
        self.reported: list[tuple[str, Mapping[str, Any]]] = []
        own, metrics = PulsarCollectSettings(**settings), CollectMetrics()
        self.pusher = Pusher(self.rest, Notes(self.rest, own.notes_namespace), metrics)
        self.collector = Collector(
            self.rest, self.pusher, own, policies=lambda: PolicySet(self.entries),
            report=self.reported.extend, name="test", push=True, metrics=metrics,
        )  # fmt: skip

    def rounds(self, number: int, apart_s: float = 1.0) -> Round:
        """Some rounds; returns the last one."""
        for left in range(number, 0, -1):
            done: Round = self.run(self.collector.round())
            if left > 1:
                time.sleep(apart_s)
        return done


RigOf = Callable[..., Rig]


@pytest.fixture
def rig_of(pulsar: LocalPulsar) -> Iterator[RigOf]:
    """Makes collectors of policies, and closes them."""
    with ExitStack() as made:
        yield lambda entries, **own: made.enter_context(closing(Rig(pulsar.admin, entries, **own)))


@pytest.fixture
def namespace(admin: Admin) -> str:
    """A new one."""
    return admin.namespace(f"{fresh('collected')}/orders")


def grouped(namespace: str, **limits: int) -> dict[str, Any]:
    """Policies that limit a namespace by a group."""
    return {"resourcegroups.g": limits, f"namespaces.{namespace}": {"resourcegroup": "g"}}


def test_a_group_holds_and_an_operators_limit_stays(
    pulsar: LocalPulsar, admin: Admin, namespace: str, rig_of: RigOf
) -> None:
    """100 msg/s at the client; what an operator has set is left alone; all of ours goes with its policy."""
    topic = admin.topic(f"persistent://{namespace}/limited")
    own, all_of_it = Slot(namespace, topic, "", Kind.PUBLISH), Slot(namespace, "", "", Kind.DISPATCH)
    operators = {"dispatchThrottlingRateInMsg": 7_777, "ratePeriodInSecond": 1}
    admin.do("POST", f"namespaces/{namespace}/dispatchRate", operators)
    rig = rig_of(grouped(namespace, publishRateInMsgs=LIMIT, dispatchRateInMsgs=LIMIT))
    hungry = partial(drive_pulsar, pulsar.service, topic, rate=400.0, max_pending_messages=50)
    with Driving(hungry) as driving:
        until(lambda: driving.ended[0], what="a message")
        rig.rounds(2)
        assert rig.pusher.pushed[own] == Rates(LIMIT, -1)
        assert list(rig.pusher._foreign) == [all_of_it]
        # The first second has the new bucket beside its own messages.
        time.sleep(1.5)
        began = time.monotonic()
        time.sleep(4.0)
        seconds = driving.per_second(began, 4)
        assert abs(sum(seconds) / 4 - LIMIT) <= 0.03 * LIMIT, seconds
    again = rig_of(rig.entries)
    again.rounds(1)
    assert again.pusher.pushed == rig.pusher.pushed
    again.entries = {}
    results = again.rounds(1).results
    assert results is not None and set(results.values()) == {Result.REMOVED}
    assert admin.do("GET", f"namespaces/{namespace}/publishRate") is None
    kept = admin.do("GET", f"namespaces/{namespace}/dispatchRate")
    assert kept["dispatchThrottlingRateInMsg"] == operators["dispatchThrottlingRateInMsg"]


@pytest.mark.soak
def test_dispatch_rates_of_policies_hold(
    pulsar: LocalPulsar, admin: Admin, namespace: str, rig_of: RigOf
) -> None:
    """A subscription's 50 msg/s, and both sources of counters say the same."""
    topic = admin.topic(f"persistent://{namespace}/deliveries")
    rate = {"dispatchThrottlingRateInMsg": 50, "ratePeriodInSecond": 1}
    entries = grouped(namespace, publishRateInMsgs=100_000)
    entries[f"namespaces.{namespace}"]["subscriptionDispatchRate"] = rate
    rig, twin = (rig_of(entries, source=source) for source in Source)
    rig.rounds(2, 0.2)
    twin.rounds(1)
    assert rig.pusher.pushed[Slot(namespace, "", "", Kind.SUBSCRIPTION)] == Rates(50, -1)
    with client(pulsar.service) as connected:
        consumer = connected.subscribe(topic, "s", receiver_queue_size=1000)
        producer = connected.create_producer(topic, batching_enabled=False)
        for _ in range(600):
            producer.send_async(b"x" * 100, None)
        producer.flush()
        began, got = time.monotonic(), 0
        while time.monotonic() - began < 5.0:
            consumer.acknowledge(consumer.receive(2_000))
            got += 1
    # Permits that were there before the first one count whole: a full bucket at the start.
    assert 220 <= got <= 330
    one, two = rig.rounds(1), twin.rounds(1)
    assert one.passed is not None and two.passed is not None
    place = next(place for place in one.passed.counts if place.subscription == "s")
    assert one.passed.counts[place][2] >= got
    assert abs(one.passed.counts[place][2] - two.passed.counts[place][2]) <= 60
    assert rig.reported[-1][1]["usage"]["g"]["publishedMsg"] == 600
    rig.run(rig.collector.withdraw())


ROUND_S = 5


def collecting(company: Company, pulsar: LocalPulsar, name: str, *words: str) -> Command:
    """A collector that has done its first round."""
    words = ("collect", "pulsar", "--kafka", company.kafka.bootstrap, "--push", *words)
    command = Command(company.folder / name, *words, collect_pulsar={"admin": pulsar.admin})
    assert command.ready()["pid"] == command.process.pid
    return command


@pytest.mark.soak
def test_a_group_of_three_topics(pulsar: LocalPulsar, admin: Admin, say: Say, tmp_path: Path) -> None:
    """10, 400 and 400 wanted of 100: together never above it for long, and near it once settled."""
    namespace = admin.namespace(f"{fresh('live')}/orders")
    group = fresh("gold")
    wishes = {"small": 10.0, "hungry1": 400.0, "hungry2": 400.0}
    drive = partial(drive_pulsar, pulsar.service, max_pending_messages=50)
    drives = [partial(drive, f"persistent://{namespace}/{name}", rate=rate) for name, rate in wishes.items()]
    with Company(tmp_path) as company, Driving(*drives) as driving, ExitStack() as running:
        company.put("broker", {"resourceUsagePublishIntervalInSecs": ROUND_S})
        company.put(f"resourcegroups.{group}", {"publishRateInMsgs": LIMIT})
        company.put(f"namespaces.{namespace}", {"resourcegroup": group})
        until(lambda: all(driving.ended), what="a message of each")
        began = time.monotonic()
        collector = running.enter_context(collecting(company, pulsar, "first"))
        started = time.monotonic() - began
        time.sleep(60.0)
        seconds = driving.per_second(began, int(time.monotonic() - began))
        effect = next(n for n, count in enumerate(seconds) if count < 2 * LIMIT) - started
        settled = seconds[-20:]
        say(f"in force {effect:.1f} s after the first reading; {seconds}")
        since = time.monotonic() - 20
        parts = [sum(at >= since for at in list(each)) / 20 for each in driving.ended]
        say(f"last 20 s: {min(settled)} to {max(settled)}, mean {sum(settled) / 20:.1f}, by topic {parts}")
        assert 0.85 * LIMIT <= sum(settled) / 20 <= 1.1 * LIMIT
        changed = time.monotonic()
        company.put(f"resourcegroups.{group}", {"publishRateInMsgs": 2 * LIMIT})
        time.sleep(40.0)
        after = driving.per_second(changed, 40)
        reached = next(n for n, count in enumerate(after) if count >= 1.5 * LIMIT)
        say(f"doubled: after {reached} s; {after}")
        assert reached <= 2.0 + 2 * ROUND_S + 10.0
        assert 0.85 * 2 * LIMIT <= sum(after[-10:]) / 10 <= 1.1 * 2 * LIMIT
        # A second collector takes over, and the first one ends and says so; limits stay as they are.
        second = running.enter_context(collecting(company, pulsar, "second", "--metrics", "127.0.0.1:0"))
        assert collector.process.wait(30.0) == 3
        assert "another collector has taken over" in collector.log.read_text()
        time.sleep(3 * ROUND_S)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(15.0) == 0
        assert "stay in force" in second.log.read_text()
        assert 0.85 * 2 * LIMIT <= sum(driving.per_second(time.monotonic() - 5, 5)) / 5 <= 1.15 * 2 * LIMIT
    assert admin.do("GET", f"namespaces/{namespace}/publishRate")["publishThrottlingRateInMsg"] == LIMIT / 10
