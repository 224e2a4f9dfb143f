"""Who waits and why, on a real Kafka: `weir top`, the admin API's view over all laws, and its stream."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import entity_kit as said
import orjson
import pytest
import stack_kit
from admin_process_kit import Admin
from cluster_kit import Cluster, fresh
from pack_kit import packed
from proxy_kit import ProxyThread, until
from wire_client import WireClient, errors

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Topics
from weir.cli import main

VIEW = "/weir/v1/entities"
FIELDS = ["entity", "law", "limit", "used", "fraction", "waiting_ms", "refused", "since", "entry"]


@pytest.fixture(scope="module")
def admin(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """The admin API beside the shared proxy."""
    folder = tmp_path_factory.mktemp("top") / "admin"
    with Admin(cluster.kafka.bootstrap, folder, cluster.topics.prefix) as running:
        yield running


def weir(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster."""
    return stack_kit.weir(*words, "--kafka", cluster.kafka.bootstrap)


@pytest.mark.soak
def test_a_throttled_client_is_found_everywhere(
    cluster: Cluster, proxy: ProxyThread, wire: Callable[..., WireClient], admin: Admin
) -> None:
    """In the list of the API, the stream, `weir top` as JSON and as a table, with the same words."""
    name = fresh("seen")
    entity = f"user=ANONYMOUS,client-id={name}"
    entry = f"quotas[{entity}]"
    cluster.limit(proxy, name, controller_mutation_rate=0.1, controller_mutation_burst=5)
    with Stream(admin, f"by=wait&law=mutation&entity={quote(entity, safe='')}") as stream:
        answer = wire(name).create({f"{name}-{i}": 5 for i in range(3)})
        assert sorted(errors(answer).values()) == [0, 0, 89]
        assert stream.event("decision")["subject"] == entity
        told = next(part.error_message for part in answer.topics if part.error_code)
        assert stream.event("summary")["waiting"] >= 1

    def listed() -> dict[str, Any] | None:
        status, rows = admin.ask("GET", f"{VIEW}?by=wait&law=mutation&limit=1000")
        assert status == 200
        return next((row for row in rows if row["entity"] == entity and row["waiting_ms"]), None)

    row = until(listed, what="the entity waits")
    assert list(row)[:9] == FIELDS
    assert (row["limit"], row["entry"], row["refused"], row["unit"]) == (0.1, entry, 1, "mutations/s")
    assert row["fraction"] > 1 and row["since"].endswith("Z")
    whole = admin.ask("GET", f"{VIEW}/mutation/{quote(entity, safe='')}")[1]
    assert entity in whole["reason"] and entry in whole["reason"]
    assert whole["decisions"][0]["outcome"] == "reject" and whole["help"]["burst"] == 15
    assert {share["proxy"] for share in whole["shares"]} >= {"shared"}

    found = weir(cluster, "top", "--by", "wait", "--limit", "1000", "--json")
    assert found.returncode == 0, found.stderr
    same = next(each for each in json.loads(found.stdout) if each["entity"] == entity)
    assert list(same) == list(row)
    assert {key: same[key] for key in ("law", "limit", "entry", "refused", "since", "unit")} == {
        key: row[key] for key in ("law", "limit", "entry", "refused", "since", "unit")
    }
    assert told.rpartition("Why: ")[2].startswith("weir explain --id shared-")
    words = told.rpartition("Why: weir ")[2].split()
    why = json.loads(weir(cluster, *words, "--json").stdout)
    assert why["decision"]["outcome"] == "reject" and why["policy"]["path"] == entry
    assert why["event"]["items"] and why["events"][-1] == why["event"]
    assert why["before"]["tokens"] == why["after"]["tokens"] + why["decision"]["mutations"]
    found = weir(cluster, "explain", "--subject", entity, "--at", "now")
    assert found.returncode == 0 and f"Policy: {entry}" in found.stdout and "Decided" in found.stdout
    missing = weir(cluster, "explain", "--id", "nobody-1")
    assert missing.returncode == 1 and "no decision with the id nobody-1" in missing.stderr

    shown = weir(cluster, "top", "--by", "wait")
    assert shown.returncode == 0 and "wait, for" in shown.stdout


def test_every_law_is_in_the_list(
    cluster: Cluster, topics: Topics, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Decisions and events, single and packed; the API shows them by the same view."""
    now = time.time_ns() // 1_000_000
    write = partial(stack_kit.put, cluster.kafka.bootstrap)
    for path, value in said.POLICIES.items():
        write(topics.policies, {"type": "policy", "ts": 1, "path": path, "value": value}, key=path)
    debt = said.admission(now, tokens=-60.0, throttle_time_ms=600_000, rejected=["t9"])
    write(topics.decisions, said.dispatch(now, 25, 600_000), said.slots(now, 20), said.backlog(now, 1_500))
    write(topics.decisions, *packed([debt]), headers={HEADER: CONTENT_TYPE}, key="user=alice")
    write(topics.usage, said.usage(now, "p1", 900, throttled_ms=5_000), said.latency(now, 19))
    assert main(["top", *options, "--json"]) == 0
    rows = {row["law"]: row for row in json.loads(capsys.readouterr().out)}
    for law, waits in (
        ("mutation", True), ("shares", True), ("dispatch", True), ("concurrency", False), ("backlog", True),
    ):  # fmt: skip
        each = rows[law]
        assert each["fraction"] >= 0.9 and bool(each["waiting_ms"]) is waits, each
        assert each["entry"] is not None


@pytest.mark.soak
def test_nothing_to_show_is_said(options: list[str]) -> None:
    """An empty list with a hint; topics that are not there are an error."""
    found = stack_kit.weir("top", *options)
    assert found.returncode == 0 and "does the job run" in found.stdout
    assert json.loads(stack_kit.weir("top", *options, "--json").stdout) == []
    Path(options[-1]).write_text("kafka: {topic_prefix: none.}\n")
    gone = stack_kit.weir("top", *options)
    assert gone.returncode == 1 and "none.policies" in gone.stderr


class Stream(AbstractContextManager[Any]):
    """A stream of events that is read."""

    def __init__(self, admin: Admin, query: str) -> None:
        address = urlsplit(admin.url)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
        self._connection.request("GET", f"/weir/v1/stream?{query}")
        self._answer = self._connection.getresponse()
        assert self._answer.headers["content-type"].startswith("text/event-stream")

    def event(self, name: str) -> Any:
        """The next event of that name."""
        while True:
            line = self._answer.readline().decode()
            assert line, "the stream has ended"
            if line == f"event: {name}\n":
                return orjson.loads(self._answer.readline().removeprefix(b"data: "))

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()
