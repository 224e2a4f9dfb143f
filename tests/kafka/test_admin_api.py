"""`weir admin` over a real Kafka, driven by HTTP and by Pulsar's own pulsar-admin."""

import getpass
import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
import with_constant
from admin_process_kit import Admin, pulsar_admin
from cluster_kit import Cluster
from confluent_kafka import Producer
from pack_kit import packed
from proxy_kit import until
from stack_kit import series_at, weir
from threaded import together

from streaming.columns.packed import CONTENT_TYPE, HEADER
from streaming.contract.topics import Cluster as Home
from streaming.contract.topics import Topics
from streaming.kafka_io.policy_topic import read_policies
from streaming.kafka_io.policy_turn import EFFECTIVE_AFTER_MS

GROUPS = "/admin/v2/resourcegroups"
TOPIC = "persistent://acme/orders/t1"
ORDERS = "/admin/v2/namespaces/acme/orders/resourcegroup"
UNLIMITED = {
    "publishRateInMsgs": -1, "publishRateInBytes": -1, "dispatchRateInMsgs": -1, "dispatchRateInBytes": -1,
}  # fmt: skip


@pytest.mark.soak
def test_pulsar_admin_works_as_it_is(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """create, get, list, update, attach, detach, delete; what Pulsar refuses is refused with its words."""
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
        run = admin.run
        assert run("resourcegroups", "create", "rg1", "-mp", "300", "--byte-publish-rate", "1000000") == ""
        limits = UNLIMITED | {"publishRateInMsgs": 300, "publishRateInBytes": 1_000_000}
        assert json.loads(run("resourcegroups", "get", "rg1")) == limits
        assert run("resourcegroups", "update", "rg1", "--msg-dispatch-rate", "50") == ""
        assert json.loads(run("resourcegroups", "get", "rg1")) == limits | {"dispatchRateInMsgs": 50}
        assert run("resourcegroups", "list") == "rg1"
        assert run("namespaces", "set-resource-group", "acme/orders", "--resource-group-name", "rg1") == ""
        assert run("namespaces", "get-resource-group", "acme/orders") == "rg1"
        assert "ResourceGroup is in use" in run("resourcegroups", "delete", "rg1")
        assert run("namespaces", "remove-resource-group", "acme/orders") == ""
        assert run("resourcegroups", "delete", "rg1") == ""
        assert "ResourceGroup does not exist" in run("resourcegroups", "get", "rg1")
        assert read_policies(Home(cluster.kafka.bootstrap, topics)).entries == {}


@pytest.mark.soak
def test_pulsar_admin_sets_dispatch_rates_as_it_is(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """Of namespaces, topics, subscriptions and brokers: set, get, what applies, remove."""
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
        run = admin.run
        def rate_of(*words: str) -> tuple[int, int]:
            """Messages and bytes of a rate that it shows."""
            shown = json.loads(run(*words))
            return shown["dispatchThrottlingRateInMsg"], shown["dispatchThrottlingRateInByte"]

        assert run("namespaces", "get-dispatch-rate", "acme/orders") == "null"
        assert run("namespaces", "set-dispatch-rate", "acme/orders", "-md", "10") == ""
        assert rate_of("namespaces", "get-dispatch-rate", "acme/orders") == (10, -1)
        period = ("-bd", "1000", "-dt", "5")
        assert run("namespaces", "set-subscription-dispatch-rate", "acme/orders", *period) == ""
        assert "ambiguous" in run("namespaces", "set-dispatch-rate", "acme/orders", "-md", "0")
        assert "relativeToPublishRate" in run("namespaces", "set-dispatch-rate", "acme/orders", "-rp")
        assert rate_of("topicPolicies", "get-dispatch-rate", TOPIC, "-ap") == (10, -1)
        assert run("topicPolicies", "set-dispatch-rate", TOPIC, "-md", "7") == ""
        assert rate_of("topicPolicies", "get-dispatch-rate", TOPIC) == (7, -1)
        assert "one cluster" in run("topicPolicies", "set-dispatch-rate", TOPIC, "-md", "7", "-g")
        own = ("-s", "a/b%c+d e")
        assert run("topicPolicies", "set-subscription-dispatch-rate", TOPIC, "-md", "3", *own) == ""
        assert rate_of("topicPolicies", "get-subscription-dispatch-rate", TOPIC, *own) == (3, -1)
        assert rate_of("topicPolicies", "get-subscription-dispatch-rate", TOPIC, "-ap") == (-1, 1000)
        limit = "dispatchThrottlingRateInMsg"
        assert run("brokers", "update-dynamic-config", "--config", limit, "--value", "50") == ""
        assert run("brokers", "get-all-dynamic-config").split() == [limit, "50"]
        assert limit in run("brokers", "list-dynamic-config")
        assert "non-dynamic" in run("brokers", "update-dynamic-config", "--config", "nosuch", "--value", "5")
        one = {"ratePeriodInSecond": 1, "dispatchThrottlingRateInByte": -1}
        assert read_policies(Home(cluster.kafka.bootstrap, topics)).entries == {
            "namespaces.acme/orders": {
                "dispatchRate": {**one, "dispatchThrottlingRateInMsg": 10},
                "subscriptionDispatchRate": {
                    "dispatchThrottlingRateInMsg": -1,
                    "dispatchThrottlingRateInByte": 1000,
                    "ratePeriodInSecond": 5,
                },
            },
            f"topics.{TOPIC}": {
                "dispatchRate": {**one, "dispatchThrottlingRateInMsg": 7},
                "subscriptions": {"a/b%c+d e": {"dispatchRate": {**one, "dispatchThrottlingRateInMsg": 3}}},
            },
            "broker": {limit: 50},
        }
        assert run("namespaces", "remove-dispatch-rate", "acme/orders") == ""
        assert run("namespaces", "remove-subscription-dispatch-rate", "acme/orders") == ""
        assert run("topicPolicies", "remove-dispatch-rate", TOPIC) == ""
        assert run("topicPolicies", "remove-subscription-dispatch-rate", TOPIC, *own) == ""
        assert run("brokers", "delete-dynamic-config", "--config", limit) == ""
        assert read_policies(Home(cluster.kafka.bootstrap, topics)).entries == {}


@pytest.mark.soak
def test_stats_are_read_from_deliveries_and_decisions(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    """Single records and packed ones; pulsar-admin shows what it knows of them."""
    who = {"broker": "broker-1", "topic": TOPIC, "subscription": "sub1", "proxy": "p1"}
    report = {"type": "dispatch_usage", **who, "msgs": 30, "bytes": 3000, "entries": 5, "backlog": True}
    decision = {
        "type": "dispatch", "id": "d", "ts": 1, **who, "available": {"msgs": 0, "bytes": None},
        "throttle_time_ms": 3_000, "limited_by": {"level": "subscription", "dimension": "msgs"},
        "acquired": {"subscription": {"msgs": 10**6, "bytes": 0}}, "entries_to_read": 0, "shadow": False,
        "ttl_ms": 1_000,
    }  # fmt: skip
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix) as admin:
        stats = "/admin/v2/persistent/acme/orders/t1/stats"
        assert admin.ask("GET", stats)[0] == 404
        rate = {"dispatchThrottlingRateInMsg": 10}
        assert admin.ask("POST", "/admin/v2/persistent/acme/orders/t1/sub1/dispatchRate", rate)[0] == 204
        producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap})

        def subscription() -> Any:
            now = {"ts": time.time_ns() // 1_000_000}
            producer.produce(topics.usage, orjson.dumps(report))
            for value in packed([report]):
                producer.produce(topics.usage, value, headers={HEADER: CONTENT_TYPE})
            producer.produce(topics.usage, orjson.dumps(report | {"msgs": -1}))
            producer.produce(topics.decisions, orjson.dumps(decision | now))
            producer.produce(topics.decisions, orjson.dumps(decision | {"ts": 10**14}))
            assert producer.flush(10) == 0
            status, shown = admin.ask("GET", stats)
            own = shown["subscriptions"]["sub1"] if status == 200 else None
            # A look between the two forms of a report sees half of them.
            counted = own and own["msgOutCounter"] >= 60 and own["msgOutCounter"] % 60 == 0
            return own if counted and own["resumeTime"] else None

        own = until(subscription, what="the stats")
        assert own["available"] == {"msgs": 0, "bytes": None}
        assert own["debt"]["msgs"] > 500_000
        assert own["limitedBy"] == {"level": "subscription", "dimension": "msgs"}
        assert own["brokers"][0]["proxies"][0]["proxy"] == "p1"
        done = pulsar_admin(tmp_path, admin.url, "topics", "stats", TOPIC)
        seen = json.loads(done.stdout)["subscriptions"]["sub1"]
        assert seen["msgOutCounter"] >= own["msgOutCounter"]
        assert seen["dispatchThrottledMsgEventsBySubscriptionLimit"] >= 1
        assert series_at(admin.ready["metrics"])["weir_admin_dispatch_rows"] == 1.0


@pytest.mark.soak
def test_pulsar_admin_shows_its_token(cluster: Cluster, topics: Topics, tmp_path: Path) -> None:
    """As it would to a broker; without one it is told why not."""
    tokens = tmp_path / "tokens.yaml"
    tokens.touch(0o600)
    tokens.write_text("tokens:\n- {token: secret, role: admin, name: ops}\n- {token: look, role: reader}\n")
    with Admin(cluster.kafka.bootstrap, tmp_path / "admin", topics.prefix, "--tokens", str(tokens)) as admin:
        words = ("--auth-plugin", "org.apache.pulsar.client.impl.auth.AuthenticationToken", "--auth-params")
        create = ("resourcegroups", "create", "rg1", "-mp", "300")
        assert pulsar_admin(tmp_path, admin.url, *words, "token:secret", *create).returncode == 0
        refused = pulsar_admin(tmp_path, admin.url, *words, "token:look", *create)
        assert (refused.returncode, "admin permissions" in refused.stderr) == (1, True)
        assert admin.ask("GET", f"{GROUPS}/rg1", token="look")[1]["publishRateInMsgs"] == 300
        assert admin.ask("GET", f"{GROUPS}/rg1")[0] == 401
        assert admin.ready["tokens"] is True
        assert "PUT /admin/v2/resourcegroups/rg1 by ops: 204" in admin.log


def shows_usage(cluster: Cluster, topics: Topics, admin: Admin) -> None:
    """What a proxy reports and what the job decides, as records."""
    report = {
        "type": "group_usage", "broker": "p1", "period_ms": 1000,
        "usage": {"rg1": {"publishedMsg": 40, "throttledMs": {"publishRateInMsgs": 90}}},
    }  # fmt: skip
    share = {
        "type": "share", "id": "rg1/p1@1", "ts": 1, "group": "rg1", "broker": "p1", "round": 1,
        "usage": {"publishRateInMsgs": 40.0}, "limits": {"publishRateInMsgs": 100.0}, "ttl_ms": 180_000,
    }  # fmt: skip
    producer = Producer({"bootstrap.servers": cluster.kafka.bootstrap})

    def members() -> object:
        producer.produce(topics.usage, orjson.dumps(report))
        producer.produce(topics.usage, b"not a report")
        producer.produce(topics.decisions, orjson.dumps(share))
        assert producer.flush(10) == 0
        shown = admin.ask("GET", f"{GROUPS}/rg1/usage")[1]["members"]
        return shown if shown and shown[0]["share"] and shown[0]["period_ms"] == 1000 else None

    (member,) = until(members, what="the usage")
    assert member["usage"]["publishRateInMsgs"] == 40.0
    assert member["share"] == {"publishRateInMsgs": 100.0}
    assert member["throttledMs"]["publishRateInMsgs"] == 90
    assert series_at(admin.ready["metrics"])["weir_admin_usage_rows"] == 1.0


def test_changes_are_seen_at_once_take_effect_in_two_seconds_and_stay(
    cluster: Cluster, topics: Topics, tmp_path: Path
) -> None:
    """Each GET shows the PUT before it; another process that starts later shows it too, and usage."""
    with Admin(cluster.kafka.bootstrap, tmp_path / "first", topics.prefix) as admin:
        for rate in range(1, 6):
            assert admin.ask("PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": rate}) == (204, "")
            assert admin.ask("GET", f"{GROUPS}/rg1")[1]["publishRateInMsgs"] == rate
        before_ms = time.time_ns() // 1_000_000
        assert admin.ask("POST", f"{ORDERS}/rg1") == (204, "")
        log = read_policies(Home(cluster.kafka.bootstrap, topics))
        effective_ms = log.effective["namespaces.acme/orders"]
        assert before_ms + EFFECTIVE_AFTER_MS <= effective_ms
        assert effective_ms <= time.time_ns() // 1_000_000 + EFFECTIVE_AFTER_MS
        assert (log.newest_version, log.origins["resourcegroups.rg1"]) == (7, "admin")
        assert "no tokens are configured" in admin.log
    with Admin(cluster.kafka.bootstrap, tmp_path / "second", topics.prefix) as admin:
        assert admin.ask("GET", f"{GROUPS}/rg1") == (200, UNLIMITED | {"publishRateInMsgs": 5})
        assert admin.ask("GET", ORDERS) == (200, "rg1")
        shows_usage(cluster, topics, admin)


@pytest.mark.soak
def test_writers_at_a_time_lose_nothing(
    cluster: Cluster, topics: Topics, tmp_path: Path, options: list[str]
) -> None:
    """Two processes of the API change one group's fields, and `weir policy apply` a quota, all at once."""
    policies = tmp_path / "policies.yaml"
    policies.write_text("version: 1\nquotas: [{entity: {user: a}, controller_mutation_rate: 5}]\n")
    patient = with_constant.at("enforcer.control.store", "CHANGE_S", 20)
    with (
        Admin(cluster.kafka.bootstrap, tmp_path / "one", topics.prefix, module=patient) as one,
        Admin(cluster.kafka.bootstrap, tmp_path / "two", topics.prefix, module=patient) as two,
    ):
        answers: list[tuple[int, Any]] = []

        def change(admin: Admin, field: str) -> None:
            for rate in range(1, 6):
                answers.append(admin.ask("PUT", f"{GROUPS}/rg1", {field: rate}))

        applied, *_ = together(
            lambda: weir("policy", "apply", str(policies), *options),
            lambda: change(one, "publishRateInMsgs"), lambda: change(two, "dispatchRateInMsgs"),
        )  # fmt: skip
        assert applied.returncode == 0, applied.stderr
        assert answers == [(204, "")] * 10
        log = read_policies(Home(cluster.kafka.bootstrap, topics))
        assert log.entries == {
            "resourcegroups.rg1": {"publishRateInMsgs": 5, "dispatchRateInMsgs": 5},
            "quotas[user=a]": {"controller_mutation_rate": 5},
        }
        assert (log.records, log.newest_version) == (11, 12)
        wanted = UNLIMITED | {"publishRateInMsgs": 5, "dispatchRateInMsgs": 5}

        def both_seen() -> bool:
            return all(admin.ask("GET", f"{GROUPS}/rg1")[1] == wanted for admin in (one, two))

        until(both_seen, what="both changes")


@pytest.mark.soak
def test_changes_are_told_with_who_and_why(
    cluster: Cluster, topics: Topics, tmp_path: Path, options: list[str]
) -> None:
    """By two tokens, one of which comes while it runs, and by a file; a refused attempt is logged."""
    bootstrap, tokens = cluster.kafka.bootstrap, tmp_path / "tokens.yaml"
    policies = tmp_path / "policies.yaml"
    policies.write_text("version: 1\nquotas: [{entity: {user: a}, controller_mutation_rate: 5}]\n")
    ops = "- {token: secret, role: operator, name: ops}"
    tokens.touch(0o600)
    tokens.write_text(f"tokens:\n{ops}\n- {{token: old, role: viewer}}\n")

    def policy(*words: str) -> list[str]:
        done = weir("policy", *words, *options, limit_s=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    rate = "/admin/v2/namespaces/acme/orders/dispatchRate"
    with Admin(bootstrap, tmp_path / "admin", topics.prefix, "--tokens", str(tokens)) as admin:

        def change(token: str, messages: int, reason: str, path: str = rate) -> int:
            body = {"dispatchThrottlingRateInMsg": messages}
            return admin.ask("POST", path, body, token, {"X-Weir-Reason": reason})[0]

        assert change("secret", 10, "a first limit") == 204
        assert (admin.ask("GET", rate, token="old")[0], change("team", 20, "")) == (200, 401)
        own = "- {token: team, role: tenant, tenants: [acme], name: acme-team}"
        tokens.write_text(f"tokens:\n{ops}\n{own}\n")
        assert change("team", 20, "more for the fair") == 204
        assert change("team", 20, "theirs", rate.replace("acme", "other")) == 403
        assert admin.ask("GET", rate, token="old")[0] == 401
        assert "acme-team is for what belongs to acme" in admin.log
        tokens.write_text("tokens: []\n")
        assert admin.ask("GET", rate, token="team")[0] == 200
        policy("apply", str(policies), "--reason", "ticket 7")
        assert series_at(admin.ready["metrics"])['weir_admin_token_reads_total{result="unusable"}'] == 1.0
    told = [json.loads(each) for each in policy("log", "--json")]
    assert [(row["actor"].partition("@")[0], row["reason"], row["version"]) for row in told] == [
        ("ops", "a first limit", 2), ("acme-team", "more for the fair", 3),
        (f"file:{getpass.getuser()}", "ticket 7", 4),
    ]  # fmt: skip
    ten, twenty = ({"dispatchThrottlingRateInMsg": messages} for messages in (10, 20))
    assert [(row["old"], row["new"]) for row in told] == [
        (None, {"dispatchRate": ten}),
        ({"dispatchRate": ten}, {"dispatchRate": twenty}),
        (None, {"controller_mutation_rate": 5}),
    ]  # fmt: skip
    now = time.time_ns() // 1_000_000
    assert all(now - 300_000 < row["at"] <= now + 5_000 for row in told)
    assert [json.loads(each) for each in policy("log", "--json", "--entry", "quotas[user=a]")] == told[2:]
    shown = policy("log", "--from", str(told[1]["at"]))
    assert len(shown) == 2 and "acme-team namespaces.acme/orders" in shown[0]
