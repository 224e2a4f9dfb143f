"""The whole stack as a user starts and uses it."""

import json
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest
from acl_kit import run_tools
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from live_backlogs import EVICTS, LIMIT, RECORDS, WAIT_S, Backlogs, full, series
from load_kit import ConfluentProducer
from reading_kit import Reading, fill
from stack_kit import STOP_LIMIT_S, WEIR, Up, create, decisions, did, new_topics, read_all, replayed, until

from streaming.contract.topics import Cluster
from weir.demo.story import play
from weir.foreground import StopSignal
from weir.stack.process import running

QUOTA_EXCEEDED = 89
GROUPS = "/admin/v2/resourcegroups"


def admin(up: Up, client_id: str) -> KafkaAdminClient:
    """kafka-python's admin client, connected through the proxy."""
    return KafkaAdminClient(bootstrap_servers=up.ready["proxy"], client_id=client_id)


def ask(up: Up, method: str, path: str, body: bytes | None = None) -> bytes:
    """What the admin API answers; fails where it refuses."""
    asked = Request(f"{up.ready['admin']}{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(asked, timeout=20) as answer:
        return bytes(answer.read())


def test_ready_file_names_every_part_and_its_process(up: Up) -> None:
    """The ready file and the line beginning `weir is ready` come when a probe was decided."""
    assert set(up.ready) == {"proxy", "kafka", "admin", "metrics", "pids"}
    assert {"kafka", "job", "job_jvm", "proxy", "admin"} <= set(up.ready["pids"])
    assert all(running(pid) for pid in up.ready["pids"].values())
    assert any(line.startswith("weir is ready") for line in up.text().splitlines())


def test_metrics_port_serves_all_parts_together(up: Up) -> None:
    """One text with the metrics of job and proxy, each family once, and which part answered."""
    text = up.metrics()

    assert 'weir_part_up{part="job"} 1' in text
    assert 'weir_part_up{part="proxy"} 1' in text
    assert 'weir_part_up{part="admin"} 1' in text
    assert "weir_job_events_total" in text and "weir_proxy_frames_total" in text
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_the_demos_clients_see_what_the_job_decides(
    up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `weir demo` lets three clients do, each at rate 1: of four topics with 5 partitions kafka-python
    creates three, and the fourth after its time; kafka-topics does not retry, and is told how long to wait;
    librdkafka speaks an old version, is never refused, and its next request waits until the debt is paid.
    """
    stack: Any = SimpleNamespace(
        cluster=Cluster(up.ready["kafka"]), addresses=lambda: up.ready, look=lambda: False
    )
    failed = play(stack, StopSignal(), tmp_path, "policies.yaml")
    shown = capsys.readouterr().out
    assert failed == [], shown
    for seen in (
        "created, created, created, error 89", "waited and tried again: created", "Created topic",
        "job decides",
    ):  # fmt: skip
        assert seen in shown, shown
    assert any("kafka-topics" in line and "retry after" in line for line in shown.splitlines()), shown
    waited = re.search(r"confluent-2, 1 partitions: created after ([\d.]+) s", shown)
    assert waited is not None and 1 < float(waited[1]) < 10, shown


def test_admin_api_sets_groups_and_shows_their_use(up: Up) -> None:
    """A group set over REST is what the job shares out: reports come back as shares in `usage`.

    What another writer had begun to write, and did not get to commit, is seen by nobody.
    """
    cut_off = Producer({"bootstrap.servers": up.ready["kafka"], "transactional.id": "weir.policies"})
    cut_off.init_transactions(20)
    cut_off.begin_transaction()
    later_ms = time.time_ns() // 1_000_000 + 4_000
    value, path = {"publishRateInMsgs": 7}, "resourcegroups.rg1"
    change = {"type": "policy", "path": path, "value": value, "ts": later_ms}
    cut_off.produce("weir.policies", json.dumps(change), key=path)
    assert cut_off.flush(20) == 0
    ask(up, "PUT", f"{GROUPS}/rg1", b'{"publishRateInMsgs":300}')
    assert json.loads(ask(up, "GET", f"{GROUPS}/rg1"))["publishRateInMsgs"] == 300
    shown = did("policy", "get", "--kafka", up.ready["kafka"])
    assert "set by the admin API: resourcegroups.rg1" in shown
    usage = {"rg1": {"publishedMsg": 50}}
    report = {"type": "group_usage", "broker": "b1", "period_ms": 1000, "usage": usage}
    producer = Producer({"bootstrap.servers": up.ready["kafka"]})

    def shared() -> bool:
        producer.produce("weir.usage", json.dumps(report), key="b1")
        producer.flush(10)
        time.sleep(0.9)  # a round is a second
        members = json.loads(ask(up, "GET", f"{GROUPS}/rg1/usage"))["members"]
        share = members[0]["share"] if members and time.time_ns() // 1_000_000 > later_ms + 2_000 else None
        assert share in (None, {"publishRateInMsgs": 300.0})
        return share is not None

    until(shared, what="a share of the group", limit_s=60)
    ask(up, "DELETE", f"{GROUPS}/rg1")


def test_a_group_is_held_to_its_limit(up: Up) -> None:
    """What a proxy reports comes back as a share from the job; a client that wants more gets the limit."""
    topic, in_group = "acme.held.t", "/admin/v2/namespaces/acme/held/resourcegroup"
    new_topics(up.ready["kafka"], topic)
    ask(up, "PUT", f"{GROUPS}/held", b'{"publishRateInMsgs":100}')
    ask(up, "POST", f"{in_group}/held")

    def has_share() -> bool:
        lines = [line for line in up.metrics().splitlines() if line.startswith("weir_group_state{")]
        return any('"held"' in line and '"active"' in line and line.endswith(" 1.0") for line in lines)

    with ConfluentProducer(up.ready["proxy"], topic, 500) as client:

        def is_limited() -> bool:
            now = time.monotonic()
            return 80 <= client.rate(now - 4, now) <= 110

        until(has_share, what="a share", limit_s=60)
        until(is_limited, what="use of the limit and no more")
    ask(up, "DELETE", in_group)
    ask(up, "DELETE", f"{GROUPS}/held")


def test_a_backlog_is_evicted_once_and_counted(up: Up) -> None:
    """What is left is within the limit and can be read; counters and the log say what went."""
    held = Backlogs(up.ready["kafka"], "acme.evicted.t")
    held.write()
    held.commit("slow", 5)
    held.commit("fast", 95)
    topic = f'topic="{full("acme.evicted.t")}"'
    page, size = up.ready["metrics"], "pulsar_storage_backlog_size"
    until(lambda: (series(page, size, topic) or 0) > LIMIT, what="the size", limit_s=WAIT_S)
    assert held.committed("slow") == [5], "there is no quota yet"
    held.limit(EVICTS)
    evicted = "pulsar_storage_backlog_quota_exceeded_evictions_total"
    until(
        lambda: series(page, evicted, topic, 'quota_type="size"') == 1.0,
        what="the eviction",
        limit_s=WAIT_S,
    )
    (offset,) = held.committed("slow")
    begun, done = held.actions("acme.evicted.t")
    assert (begun["step"], done["step"], done["how"]) == ("begun", "done", "offsets")
    assert done["messages"] == offset - 5 and done["upto"]["entry"] + done["upto"]["ledger"] == offset - 1
    assert held.committed("fast") == [95]
    assert held.read("acme.evicted.t", offset) == RECORDS - offset
    until(lambda: (series(page, size, topic) or 0) <= LIMIT, what="a size within", limit_s=WAIT_S)
    # The least that holds: with one record more it would be beyond.
    left = series(page, size, topic) or 0
    assert left + left / (RECORDS - offset) > LIMIT
    assert series(page, evicted, topic, 'quota_type="size"') == 1.0
    held.limit(None)


def test_policy_change_takes_effect_while_running(up: Up, tmp_path: Path) -> None:
    """`weir policy apply` lifts a limit: what was refused is admitted from two seconds later on."""
    client = admin(up, "changed")
    assert create(client, {"changed-1": 60})["changed-1"][0] == 0
    policies = tmp_path / "policies.yaml"
    policies.write_text(
        "version: 1\nquotas:\n"
        "  - {entity: {user: null, client-id: null}, controller_mutation_rate: 1}\n"
        "  - {entity: {user: null, client-id: load}, controller_mutation_rate: 20}\n"
        "  - {entity: {user: null, client-id: changed}, controller_mutation_rate: 1000}\n"
    )
    assert create(client, {"changed-2": 1})["changed-2"][0] == QUOTA_EXCEEDED
    client.close()

    did("policy", "apply", str(policies), "--kafka", up.ready["kafka"])
    time.sleep(3)
    other = admin(up, "changed")
    assert create(other, {"changed-3": 1})["changed-3"][0] == 0
    other.close()


def test_quotas_of_the_cluster_become_policies(up: Up) -> None:
    """`kafka-configs --alter` against the cluster is enough: `weir policy get` shows it, with its origin."""
    alter = "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type users --entity-name dora"
    run_tools(up.ready["kafka"], f"{alter} --add-config controller_mutation_rate=3")

    def shown() -> bool:
        text = did("policy", "get", "--kafka", up.ready["kafka"])
        return "dora" in text and "read from the cluster: quotas[user=dora]" in text

    until(shown, what="dora's quota")


def test_tail_shows_what_was_decided(up: Up) -> None:
    """`weir tail` prints aligned lines, filtered by subject, and ends cleanly on Ctrl-C."""
    client = admin(up, "tailed")
    create(client, {"tailed-1": 1})
    client.close()
    subject = "user=ANONYMOUS,client-id=tailed"
    command = [str(WEIR), "tail", "--kafka", up.ready["kafka"], "--from", "beginning", "--subject", subject]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert tail.stdout is not None
    # A line that does not come ends the test, not the patience of who waits for it.
    limit = threading.Timer(60, tail.kill)
    limit.start()
    try:
        line = tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        assert tail.wait(timeout=10) == 0
    finally:
        limit.cancel()
        tail.kill()
        tail.stdout.close()
    assert subject in line and line.split()[1] in ("allow", "reject", "throttle")


def test_a_group_reads_at_the_rate_that_was_set_over_rest(up: Up) -> None:
    """A subscription's dispatch rate: no more than it is delivered, each record once, and stats tell of it.

    What was decided on the way is part of what the next test replays.
    """
    rate, topic, group = 50, "read-slowly", "slow-readers"
    fill(up.ready["kafka"], topic, 1_000, batch=5)
    path = f"/admin/v2/persistent/public/default/{topic}"
    value = {"dispatchThrottlingRateInMsg": rate, "dispatchThrottlingRateInByte": -1}
    ask(up, "POST", f"{path}/subscriptionDispatchRate", json.dumps(value).encode())
    # In force 2 s after it was set.
    time.sleep(3)
    with Reading(up.ready["proxy"], group, [topic]) as reader:
        until(lambda: len(reader.came) >= 5 * rate, what="five seconds' records", limit_s=60)
        came = list(reader.came)
    (numbers,) = reader.numbers.values()
    assert sorted(numbers) == list(range(len(numbers))) and set(numbers.values()) == {1}
    # Those of n periods are there after n - 1 of them, at best.
    assert came[5 * rate - 1][0] - came[0][0] > 3.0

    def seen() -> dict[str, Any] | None:
        own: dict[str, Any] = json.loads(ask(up, "GET", f"{path}/stats"))["subscriptions"].get(group, {})
        return own if own.get("msgOutCounter", 0) >= 5 * rate else None

    found = until(seen, what="its stats")
    assert found["dispatchThrottledMsgEventsBySubscriptionLimit"] > 0


def test_killed_job_resumes_and_its_decisions_equal_the_replay(up: Up, tmp_path: Path) -> None:
    """kill -9 of the job under load: it resumes from its checkpoint; a dump replays to the same decisions."""
    before, stop = up.ready, threading.Event()
    answered: list[int] = []

    def load() -> None:
        client = admin(up, "load")
        while not stop.is_set():
            name = f"load-{len(answered)}"
            try:
                answered.append(create(client, {name: 5})[name][0])
            except KafkaError:
                time.sleep(0.2)
        client.close()

    loader = threading.Thread(target=load)
    loader.start()
    try:
        until(lambda: len(answered) > 5, what="load")
        subprocess.run(["kill", "-9", str(up.pid("job"))], check=True)
        up.wait_ready(newer_than=before)
        seen = len(answered)
        until(lambda: len(answered) > seen + 5, what="load after the restart", limit_s=60)
    finally:
        stop.set()
        loader.join(60)
    assert up.pid("job") != before["pids"]["job"]
    requests, decided = _settled(up)
    again = decisions(replayed(up.ready["kafka"], tmp_path, "dump.jsonl.gz"))
    assert sum(kind == "admission" for kind, _ in again) == requests

    def live() -> dict[tuple[str, str], dict[str, object]] | None:
        # A report of the collector may have come between the decisions that were read and the dump.
        found = decisions(read_all(up.ready["kafka"], "weir.decisions"))
        return found if found.keys() >= again.keys() else None

    said = until(live, what="a decision for all that was dumped", limit_s=60)
    assert decided.keys() <= again.keys() and again == {key: said[key] for key in again}
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text("".join(f"{json.dumps(decision)}\n" for decision in decided.values()))
    dump, none, out = (str(tmp_path / name) for name in ("dump.jsonl.gz", "none.yaml", "decisions.jsonl"))
    words = ("--policies", none, "--events", dump, "--out", out, "--decisions", str(recorded))
    assert f"{len(decided):,} recorded decisions" in did("replay", *words, "--against", none)


def _settled(up: Up) -> tuple[int, dict[tuple[str, str], dict[str, object]]]:
    """Number of requests, and their decisions once there is one for each."""

    def both() -> tuple[int, dict[tuple[str, str], dict[str, object]]] | None:
        asked = [json.loads(value) for value in read_all(up.ready["kafka"], "weir.requests")]
        count = sum(event["type"] == "request" for event in asked)
        found = decisions(read_all(up.ready["kafka"], "weir.decisions"))
        admitted = sum(kind == "admission" for kind, _ in found)
        return (count, found) if admitted == count else None

    settled = until(both, what="a decision for every request", limit_s=60)
    assert isinstance(settled, tuple)
    return settled


def test_sigterm_stops_everything_within_the_limit(up: Up) -> None:
    """SIGTERM: exit 0 within 20 s, no process left. Last in this file, since it ends the stack."""
    pids = list(up.ready["pids"].values())

    begun = time.monotonic()
    up.signal(signal.SIGTERM)

    assert up.wait() == 0
    assert time.monotonic() - begun < STOP_LIMIT_S
    until(lambda: not any(map(running, pids)), what="the end of all parts", limit_s=5)
    assert not up.ready_file.exists()
