"""Who reads for which group: a limit holds beside others of its client id, and slows down none of them.

Real broker, `weir proxy` as processes, real consumers; figures are printed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_kit import Cluster, fresh
from company_kit import Company
from exam_kit import Say
from grouped_kit import (
    DEFAULT_ID,
    FETCH,
    RATE,
    RECORDS,
    AssignedReading,
    JavaReading,
    Noted,
    PythonReading,
    as_by_default,
    excess,
    prepared,
    steady,
    took,
)
from path_kit import SpreadPath
from process_kit import Command, ProxyProcess, proxy_process
from proxy_kit import PolicyWriter, until
from reading_kit import Reading
from split_client import Loot, Way, split
from stack_kit import series_at

from streaming.contract.topics import Topics
from weir.stack.kafka import free_port

FREE_S = 12.0
"""The free one has read all so soon after its first record: commits come every 5 s."""
BESIDE_S = 60.0
"""Who cannot be meant has read all so soon; at the limit it would take eight times as long."""
START_S = 90.0
ALIVE = "weir_proxy_proxies_alive"
SERVICE, PODS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
BROKER = 2
"""The only broker's port is so far behind the first one: broker 0's comes next to it, and its id is 1."""
Make = Callable[[str, str, str], Noted]
Several = Callable[[str, Path], AbstractContextManager[list[str]]]


@pytest.fixture
def slow(cluster: Cluster, topics: Topics) -> str:
    """A topic full of records, and the name of a group that is limited on it."""
    name = fresh("slow")
    prepared(cluster.kafka.bootstrap, PolicyWriter(cluster.kafka.bootstrap, topics).put, name, name)
    return name


@pytest.fixture
def proxy(cluster: Cluster, topics: Topics, tmp_path: Path, slow: str) -> Iterator[ProxyProcess]:
    """A proxy that knows the limit."""
    with proxy_process(cluster, tmp_path, topics) as running:
        yield running


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Kafka and the job; each test starts the proxies that it wants."""
    with Company(tmp_path_factory.mktemp("groups")) as running:
        yield running


@contextmanager
def workers(kafka: str, folder: Path) -> Iterator[list[str]]:
    """`weir proxy --workers 2`; their address, for each of two clients."""
    listen = f"{SERVICE}:{free_port()}"
    with ExitStack() as running:
        ready = started(running, kafka, folder, "workers", "--listen", listen, "--workers", "2")
        await_each_other(ready["workers"])
        yield [listen, listen]


@contextmanager
def pods(kafka: str, folder: Path) -> Iterator[list[str]]:
    """Two proxies that tell clients the address of one Service; that of the first, and the Service's.

    It gives each connection to the other proxy than the one before.
    """
    port = free_port()
    with ExitStack() as running:
        ready = []
        for host in PODS:
            words = ["--listen", f"{host}:{port}", "--advertise", SERVICE]
            ready.append(started(running, kafka, folder, host, *words))
            assert ready[-1]["brokers"] == {"1": f"{host}:{port + BROKER}"}
        for number in (port, port + BROKER):
            targets = [(host, number) for host in PODS]
            running.enter_context(SpreadPath((SERVICE, number), targets))
        await_each_other(ready)
        yield [f"{PODS[0]}:{port}", f"{SERVICE}:{port}"]


def started(running: ExitStack, kafka: str, folder: Path, name: str, *words: str) -> dict[str, Any]:
    """A proxy, until it is ready; what it says then."""
    options = ("--kafka", kafka, "--id", fresh(name), "--metrics", f"{SERVICE}:0")
    command = running.enter_context(Command(folder / name, "proxy", *options, *words))
    said: dict[str, Any] = command.ready(START_S)
    return said


def await_each_other(ready: Sequence[dict[str, Any]]) -> None:
    """Until all know how many they are; those of a test before are taken to be alive for a while."""
    for each in ready:
        url = each["metrics"]
        until(lambda url=url: series_at(url)[ALIVE] == len(ready), START_S, "all know each other")


def holds_apart(limited: Noted, free: Noted, first: bool, say: Say) -> None:
    """The limited one gets its rate and never more, and the free one is free when positions tell.

    Args:
        limited: of a group with a limit of RATE.
        free: of one without.
        first: the limited one reads already when the free one begins.
        say: prints a line.
    """
    with limited:
        if first:
            until(lambda: limited.came, 60, "the limited one reads")
        with free:
            free_s = took(free, RECORDS, 2 * FREE_S)
            say(f"free: {len(free.came)} in {free_s:.1f} s, of those that are limited {len(limited.came)}")
            rate = steady(limited)
    above = excess(limited.came)
    say(f"limited: {rate:.1f} msg/s, {above:.0f} above {RATE}/s, {len(limited.came)} in all")
    assert above <= RATE + FETCH
    assert free_s <= FREE_S
    assert rate == pytest.approx(RATE, rel=0.04)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("make", "first"),
    [
        pytest.param(as_by_default, True, id="librdkafka"),
        pytest.param(as_by_default, False, id="librdkafka-at-once"),
        pytest.param(PythonReading, True, id="kafka-python"),
        pytest.param(PythonReading, False, id="kafka-python-at-once"),
        pytest.param(JavaReading, True, id="java"),
        pytest.param(JavaReading, False, id="java-at-once"),
    ],
)
def test_two_groups_of_one_client_id(
    proxy: ProxyProcess, slow: str, say: Say, make: Make, first: bool
) -> None:
    """The limit holds though another group on the host has the same client id, and that one is free."""
    own = make(proxy.bootstrap, slow, slow)
    holds_apart(own, make(proxy.bootstrap, fresh("free"), slow), first, say)


@pytest.mark.soak
@pytest.mark.parametrize("several", [workers, pods])
@pytest.mark.parametrize("make", [as_by_default, PythonReading, JavaReading])
def test_two_groups_at_several_proxies(
    company: Company, tmp_path: Path, say: Say, several: Several, make: Make
) -> None:
    """The same where a client's connections end in different processes."""
    name = fresh("slow")
    prepared(company.kafka.bootstrap, company.put, name, name)
    with several(company.kafka.bootstrap, tmp_path) as (one, other):
        holds_apart(make(one, name, name), make(other, fresh("free"), name), True, say)


@pytest.mark.soak
def test_a_group_that_begins_again_beside_a_free_one(company: Company, tmp_path: Path, say: Say) -> None:
    """Its client id is known at every worker, for the free group; the news of its own must come in time."""
    name = fresh("slow")
    prepared(company.kafka.bootstrap, company.put, name, name)
    with (
        workers(company.kafka.bootstrap, tmp_path) as (one, other),
        as_by_default(other, fresh("free"), name) as free,
    ):
        until(lambda: len(free.came) >= RECORDS, 60, "the free one has read all")
        for _ in range(6):
            with as_by_default(one, name, name) as limited:
                until(lambda limited=limited: limited.came, 60, "the limited one reads")
                time.sleep(3.0)
            say(f"began again: {len(limited.came)} in 3 s, {excess(limited.came):.0f} above {RATE}/s")
            assert excess(limited.came) <= RATE + FETCH


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(("assigned", "assigned"), id="same id", marks=pytest.mark.soak),
        pytest.param(("assigned", "renamed"), id="another id", marks=pytest.mark.soak),
        pytest.param((DEFAULT_ID, DEFAULT_ID), id="beside a free group", marks=pytest.mark.soak),
    ],
)
def test_assigned_partitions(proxy: ProxyProcess, slow: str, say: Say, ids: tuple[str, str]) -> None:
    """Who commits for a group without being a member is of it from then on, and so is who goes on there."""
    with as_by_default(proxy.bootstrap, fresh("free"), slow):
        first = AssignedReading(proxy.bootstrap, slow, slow, ids[0])
        with first:
            since, before = until(lambda: first.first_commit, 60, "a commit")
            until(lambda: len(first.came) > before + 3 * RATE, 60, "some are read")
        second = AssignedReading(proxy.bootstrap, slow, slow, ids[1], first.position)
        with second:
            rate = steady(second, 5)
    came = first.came + second.came
    above = excess(came, since, before)
    say(f"{ids}: {len(came) - before} after the first commit, {above:.0f} above; then {rate:.1f} msg/s")
    # One fetch was on its way when it committed.
    assert above <= RATE + 2 * FETCH
    assert rate == pytest.approx(RATE, rel=0.1)


WAYS = [
    pytest.param(Way(), id="other id"),
    pytest.param(Way(beside=True), id="id of a free member"),
    pytest.param(Way(beside=True, both_commit=True), id="both commit"),
    pytest.param(Way(anew=True), id="new connections"),
    pytest.param(Way(anew=True, beside=True), id="new connections with the id of a free member"),
    pytest.param(Way(anew=True, shift=-10), id="new connections a batch early"),
    pytest.param(Way(anew=True, shift=10), id="new connections a batch late"),
    pytest.param(Way(lag=3), id="late commits"),
    pytest.param(Way(anew=True, lag=3), id="late commits, new connections"),
    pytest.param(Way(decoy=True), id="a connection of its own asks ahead"),
    pytest.param(Way(decoy=True, beside=True), id="that, with the id of a free member"),
    pytest.param(Way(decoys=True), id="connections of its own ask along"),
    pytest.param(Way(decoys=True, beside=True), id="those, with the id of a free member"),
    pytest.param(Way(beside=True, pause_s=0.25), id="id of a free member, at ease"),
    pytest.param(Way(anew=True, beside=True, pause_s=0.25), id="new connections, at ease"),
]


def held(loot: Loot, say: Say) -> None:
    """Nobody has got more than the limit and two fetches after a first commit: the second one tells."""
    say(f"{loot}: {loot.total / loot.seconds:.1f} msg/s after the first commit")
    # A stretch of time touches two windows of a second more than it holds.
    assert loot.total <= RATE * (loot.seconds + 2) + 2 * loot.most


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
def test_a_split_client(proxy: ProxyProcess, slow: str, say: Say, way: Way) -> None:
    """Who commits under one client id and fetches under another does not get more than its group may."""
    held(split(proxy.bootstrap, slow, slow, way, 20.0, RECORDS), say)


@pytest.mark.soak
def test_a_split_client_for_a_moment(proxy: ProxyProcess, slow: str, say: Say) -> None:
    """The same of one with a new connection after each commit."""
    held(split(proxy.bootstrap, slow, slow, Way(anew=True, beside=True), 8.0, RECORDS), say)


@pytest.mark.soak
@pytest.mark.parametrize("several", [workers, pods])
@pytest.mark.parametrize("way", [Way(beside=True), Way(anew=True), Way(anew=True, beside=True)])
def test_a_split_client_at_several_proxies(
    company: Company, tmp_path: Path, say: Say, several: Several, way: Way
) -> None:
    """The same where its connections end in different processes."""
    name = fresh("slow")
    prepared(company.kafka.bootstrap, company.put, name, name)
    with several(company.kafka.bootstrap, tmp_path) as (_, spread):
        held(split(spread, name, name, way, 20.0, RECORDS), say)


@pytest.mark.soak
def test_others_go_at_full_speed(proxy: ProxyProcess, slow: str, say: Say) -> None:
    """Who reads for no group, and a free group with another client id, are not slowed down beside it."""
    beside: dict[str, Any] = {
        "no group": PythonReading(proxy.bootstrap, "", slow),
        "other client id": Reading(proxy.bootstrap, fresh("free"), [slow], client_id="other"),
    }
    with as_by_default(proxy.bootstrap, slow, slow) as limited:
        until(lambda: limited.came, 60, "the limited one reads")
        for name, reader in beside.items():
            with reader:
                all_s = took(reader, RECORDS, BESIDE_S)
            say(f"{name}: {len(reader.came)} in {all_s:.1f} s")
    # None of their fetches was one that may be of the limited group, so none has waited.
    assert proxy.metrics()["weir_dispatch_ambiguous_fetches_total"] == 0
    above = excess(limited.came)
    assert above <= RATE + FETCH
