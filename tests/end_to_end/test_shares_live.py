"""The exam of resource groups: real job, three `weir proxy` processes, real clients (issue 6).

Three groups at once, each with the demand 50 : 500 : 500 through three proxies: messages published, bytes
published, messages dispatched. What is asserted leaves room for a machine that is busy with other things;
what was measured is printed, and the exact claims are held in simulated time (unit/test_shares_loop.py).
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from load_kit import (
    Arrivals,
    ConfluentConsumer,
    ConfluentProducer,
    PythonProducer,
    Worker,
    peak_of,
    perf_test,
    rate_of,
)
from prometheus_client.parser import text_string_to_metric_families
from stack_kit import until

from benchmarks.kit.stack import Stack
from weir.local_kafka import HOST, free_port
from weir.parts import Change, Limits, Part
from weir.scrape import fetch

LIMIT = 300.0
SIZE = 4_000
"""Of a value in the group with a limit in bytes; what the batch adds is below 2 %."""
BYTES = LIMIT * SIZE
DEMAND = {"small": 50.0, "one": 500.0, "two": 500.0}
ROUND_S = 1.0
MEASURED_S = 30.0
KINDS = ("msgs", "bytes", "reads")
START_LIMIT_S = 60.0


def policies(limit: float) -> dict[str, Any]:
    """All three groups, the first with this limit."""
    attached = {f"namespaces.acme/{kind}": {"resourcegroup": kind} for kind in KINDS}
    return {
        "broker": {"resourceUsagePublishIntervalInSecs": 1},
        "resourcegroups.msgs": {"publishRateInMsgs": limit},
        "resourcegroups.bytes": {"publishRateInBytes": BYTES},
        "resourcegroups.reads": {"dispatchRateInMsgs": LIMIT},
        **attached,
    }


@dataclass
class Exam:
    """The stack, its proxies, and the clients of each group by name; `say` prints a line."""

    stack: Stack
    running: ExitStack
    say: Callable[[str], None]
    proxies: dict[str, Part] = field(default_factory=dict)
    listen: dict[str, str] = field(default_factory=dict)
    clients: dict[str, dict[str, Worker]] = field(default_factory=lambda: {kind: {} for kind in KINDS})

    def launch(self, name: str) -> None:
        """Start `weir proxy`."""
        listen = self.listen[name] = f"{HOST}:{free_port()}"
        folder = self.stack.folder
        words = ["--kafka", self.stack.bootstrap, "--listen", listen, "--id", name, "--metrics", f"{HOST}:0"]
        limits = Limits(start_s=START_LIMIT_S, backoff_s=1.0, restarts_max=0)
        part = Part("proxy", words, log=folder / "logs" / f"{name}.log", run_dir=folder / name, limits=limits)
        self.proxies[name] = part
        self.running.callback(part.kill)
        part.start()

    def await_ready(self, name: str) -> str:
        """Wait until the job has decided a proxy's probe; returns where it listens."""
        part = self.proxies[name]
        until(lambda: part.look() is Change.READY, what=f"proxy {name}", limit_s=START_LIMIT_S)
        return self.listen[name]

    def metric(self, proxy: str, name: str, **labels: str) -> float | None:
        """A metric of a proxy now; None: it is not there."""
        text = fetch((self.proxies[proxy].ready or {})["metrics"], 5.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        return None

    def state(self, proxy: str, state: str) -> bool:
        """Whether a proxy stands so towards its share of the first group."""
        return self.metric(proxy, "weir_group_state", group="msgs", state=state) == 1.0

    def shares(self) -> float:
        """What the proxies that are left may use of the first group together."""
        found = (self.metric(name, "weir_group_share", group="msgs") for name in ("small", "one", "new"))
        return sum(share or 0.0 for share in found)

    def begin(self, kind: str, name: str, worker: Worker) -> None:
        """Start a client and count it."""
        self.clients[kind][name] = self.running.enter_context(worker)

    def rates(self, kind: str, from_s: float, to_s: float) -> dict[str, float]:
        """What each client of a group got through, per second."""
        return {name: worker.rate(from_s, to_s) for name, worker in self.clients[kind].items()}


def said(config: pytest.Config, line: str) -> None:
    """Print a line, whether the test fails or not."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{line}")


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Exam]:
    """Kafka, job, three proxies, and a client of each group at each of them."""
    folder: Path = tmp_path_factory.mktemp("shares")
    with ExitStack() as running:
        stack = running.enter_context(Stack(folder, policies=policies(LIMIT)))
        stack.start_job()
        found = Exam(stack, running, partial(said, pytestconfig))
        names = [f"acme.{kind}.{name}" for kind in KINDS for name in (*DEMAND, "new")]
        admin = AdminClient({"bootstrap.servers": stack.bootstrap})
        for done in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            done.result(30)
        for name in DEMAND:
            found.launch(name)
        for name in DEMAND:
            found.await_ready(name)
            running.enter_context(ConfluentProducer(stack.bootstrap, f"acme.reads.{name}", DEMAND[name]))
        _begin_clients(found)
        yield found


def _begin_clients(exam: Exam) -> None:
    small, one, two = (exam.listen[name] for name in DEMAND)
    exam.begin("msgs", "small", PythonProducer(small, "acme.msgs.small", DEMAND["small"]))
    # Java says nothing while it runs: the cluster's own offsets are taken.
    topic = "acme.msgs.one"
    log = exam.stack.folder / "perf.log"
    exam.running.enter_context(perf_test(one, topic, 10**6, int(DEMAND["one"]), log))
    exam.begin("msgs", "one", Arrivals(exam.stack.bootstrap, topic))
    exam.begin("msgs", "two", ConfluentProducer(two, "acme.msgs.two", DEMAND["two"]))
    for name, listen in exam.listen.items():
        exam.begin("bytes", name, ConfluentProducer(listen, f"acme.bytes.{name}", DEMAND[name], SIZE))
        exam.begin("reads", name, ConfluentConsumer(listen, f"acme.reads.{name}"))


def shown(exam: Exam, what: str, from_s: float, to_s: float, kinds: tuple[str, ...] = KINDS) -> None:
    """Print what was measured."""
    for kind in kinds:
        rates = exam.rates(kind, from_s, to_s)
        peak = peak_of(list(exam.clients[kind].values()), from_s, to_s) if to_s - from_s >= 5 else 0.0
        told = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
        total = sum(rates.values())
        exam.say(f"{what}, {kind}: total {total:.1f} ({told}), most in 5 s {peak:.1f} per second")


def test_the_limit_is_used_and_shared(exam: Exam) -> None:
    """After three rounds, over 30 s: the total, the hungry two, the small one, the most in any 5 s."""
    for kind in KINDS:
        until(lambda kind=kind: all(w.done for w in exam.clients[kind].values()), what=f"traffic of {kind}")
    begun = time.monotonic()
    after = begun + 4 * ROUND_S
    time.sleep(4 * ROUND_S + MEASURED_S)
    shown(exam, "50:500:500", after, after + MEASURED_S)
    for kind in KINDS:
        rates: Mapping[str, float] = exam.rates(kind, after, after + MEASURED_S)
        assert 0.8 * LIMIT <= sum(rates.values()) <= 1.05 * LIMIT
        assert rates["one"] == pytest.approx(rates["two"], rel=0.2)
        assert rates["small"] >= 0.9 * DEMAND["small"]
        assert peak_of(list(exam.clients[kind].values()), after, after + MEASURED_S) <= 1.1 * LIMIT


def test_a_killed_proxy_leaves_its_share_and_a_new_one_gets_one(exam: Exam) -> None:
    """The others have it after the expiry of five rounds; the new one's clients are let in with 5 %."""
    killed = time.monotonic()
    exam.proxies["two"].kill()
    for kind in KINDS:
        exam.clients[kind]["two"].__exit__()
    time.sleep(15 * ROUND_S)
    shown(exam, "one of three killed", killed + 10, killed + 15)
    assert rate_of(list(exam.clients["msgs"].values()), killed + 10, killed + 15) >= 0.75 * LIMIT
    exam.launch("new")
    listen = exam.await_ready("new")
    started = time.monotonic()
    exam.begin("msgs", "new", ConfluentProducer(listen, "acme.msgs.new", DEMAND["one"]))
    until(lambda: exam.state("new", "active"), what="the new proxy's share")
    exam.say(f"new proxy: its share came {time.monotonic() - started:.1f} s after its client began")
    time.sleep(10)
    shown(exam, "a new one in its place", started, started + 10, ("msgs",))
    assert peak_of(list(exam.clients["msgs"].values()), killed + 1, started + 10) <= 1.1 * LIMIT
    assert exam.clients["msgs"]["new"].rate(started + 5, started + 10) >= 0.2 * LIMIT


@pytest.mark.parametrize("limit", [LIMIT / 2, LIMIT])
def test_a_changed_limit_is_met(exam: Exam, limit: float) -> None:
    """Halved and doubled: two rounds after it is in force."""
    exam.stack.publish(policies(limit))
    until(lambda: exam.metric("one", "weir_group_limit", group="msgs") == limit, what="the new limit")
    in_force = time.monotonic()
    until(lambda: exam.shares() == pytest.approx(limit), what="shares of the new limit")
    exam.say(f"limit {limit:.0f}: the shares add up to it {time.monotonic() - in_force:.1f} s later")
    time.sleep(max(0.0, in_force + 8 - time.monotonic()))
    shown(exam, f"limit {limit:.0f}", in_force + 2, in_force + 8, ("msgs",))
    total = rate_of(list(exam.clients["msgs"].values()), in_force + 2.5, in_force + 8)
    assert 0.7 * limit <= total <= 1.1 * limit


def test_without_the_job_traffic_goes_on_by_the_rule(exam: Exam) -> None:
    """After the shares' life time half of each is used; metric and log say so."""
    exam.stack.stop("job")
    for name in ("small", "one", "new"):
        until(lambda name=name: exam.state(name, "expired"), what=f"{name} knows that its share has expired")
    expired = time.monotonic()
    time.sleep(10)
    shown(exam, "without the job", expired + 1, expired + 10, ("msgs",))
    total = rate_of(list(exam.clients["msgs"].values()), expired + 2, expired + 10)
    assert 0.3 * LIMIT <= total <= 0.6 * LIMIT
    assert "expired_share: safe_fraction" in (exam.stack.folder / "logs" / "one.log").read_text()
