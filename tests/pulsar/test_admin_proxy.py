"""`weir admin --upstream` before a real Pulsar, driven by HTTP and by Pulsar's own pulsar-admin."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from admin_backlog_kit import decision, eviction
from admin_process_kit import Admin as Weir
from admin_process_kit import pulsar_admin
from broker_fixtures import apart
from cluster_kit import Cluster
from proxy_kit import until
from pulsar_kit import Admin, fresh
from pulsar_tokens import CLIENT_PLUGIN, checking, token
from stack_kit import put, series_at

from enforcer.control.backlog.stats import LIMITS
from weir.stack.pulsar import LocalPulsar

QUOTA = "quotas[user=<default>]"


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[Cluster]:
    """An installation with a quota of 2 a second, burst 22, and one enforcer only, which decides all."""
    with apart(cluster, "http") as made:
        made.policies.put(QUOTA, {"controller_mutation_rate": 2, "controller_mutation_burst": 22})
        yield made


@pytest.fixture(scope="module")
def weir(pulsar: LocalPulsar, own: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weir]:
    """The admin API in front of Pulsar."""
    folder = tmp_path_factory.mktemp("http") / "admin"
    words = ("--upstream", pulsar.admin, "--binary-address", "127.0.0.1:16650")
    with Weir(own.kafka.bootstrap, folder, own.topics.prefix, *words) as running:
        yield running


def shown(weir: Weir, name: str) -> float:
    """The only sample of a metric."""
    seen = series_at(weir.ready["metrics"]).items()
    (value,) = (value for key, value in seen if key.partition("{")[0] == name)
    return value


@pytest.mark.soak
def test_pulsar_admin_over_the_quota(weir: Weir, admin: Admin, tmp_path: Path) -> None:
    """Its first topic is created, the next one refused with the reason and not there."""
    first, second = (fresh("quota") for _ in range(2))

    def create(topic: str) -> tuple[int, str]:
        words = "topics", "create-partitioned-topic", f"persistent://public/default/{topic}", "-p", "1"
        done = pulsar_admin(tmp_path, weir.url, *words)
        return done.returncode, done.stderr

    assert create(first)[0] == 0 and admin.partitions(first) == 1
    # Not by pulsar-admin, and much: it takes longer to end than a small debt stands.
    path = f"persistent/public/default/{first}-more/partitions"
    assert Admin(weir.url).ask("PUT", path, 60).status == 204
    status, said = create(second)
    assert status == 1 and "user=ANONYMOUS" in said and "burst 22" in said
    assert not admin.exists(second)
    # Those behind it begin without a debt.
    until(lambda: Admin(weir.url).ask("PUT", f"{path[:-11]}-x/partitions", 1).status == 204, 40, "no debt")


def test_over_the_quota_nothing_is_made_until_the_time_that_is_told(weir: Weir, admin: Admin) -> None:
    """What is refused is not there, and says why; after the time it works."""
    proxied = Admin(weir.url)
    first, second = (f"persistent/public/default/{fresh('quota')}/partitions" for _ in range(2))

    def charged() -> bool:
        assert proxied.ask("PUT", f"persistent/public/default/{fresh('first')}/partitions", 1).status == 204
        # Until a first decision nobody has a balance.
        with suppress(ValueError):
            return shown(weir, "weir_proxy_subject_tokens") < 22
        return False

    until(charged, what="the quota")
    assert proxied.ask("PUT", first, 30).status == 204
    refused = proxied.ask("PUT", second, 30)
    assert refused.status == 429 and not admin.exists(second.split("/")[3])
    retry_s = int(refused.headers["retry-after"])
    assert 1 <= retry_s <= 5
    assert refused.headers["ratelimit"] == f'"partition-mutations";r=0;t={retry_s}'
    assert refused.headers["ratelimit-policy"] == '"partition-mutations";q=22;w=11'
    assert "2 per second, burst 22" in refused.body["reason"]
    time.sleep(retry_s)
    assert proxied.ask("PUT", second, 60).status == 204 and admin.partitions(second.split("/")[3]) == 60


def test_what_is_charged_is_what_was_done(weir: Weir, own: Cluster, admin: Admin) -> None:
    """Creations, growths, deletions, and what Pulsar refuses; by every way of writing the path."""
    proxied = Admin(weir.url)
    topic = f"persistent/public/default/{fresh('charged')}"
    name = topic.replace("/", "://", 1)

    def tokens() -> float:
        return round(shown(weir, "weir_proxy_subject_tokens"))

    # A balance stays under a new quota, so the old one goes first.
    own.policies.put(QUOTA, None)
    until(lambda: proxied.ask("PUT", f"{topic}-{fresh('x')}").status == 204, what="no quota")
    own.policies.put(QUOTA, {"controller_mutation_rate": 1e-3, "controller_mutation_burst": 1000})

    def decided() -> bool:
        return proxied.ask("PUT", f"{topic}-{fresh('x')}").status == 204 and tokens() > 900

    until(decided, what="a quota")
    full = tokens()
    for status, method, path, body, cost in (
        (204, "PUT", f"{topic}/partitions", 4, 4),
        (409, "PUT", f"{topic}/partitions", 9, 0),
        (409, "POST", f"{topic}-none/partitions", 9, 0),
        (404, "DELETE", f"{topic}-none/partitions", None, 0),
        (404, "DELETE", f"{topic}-none", None, 0),
        (204, "POST", f"{topic};x=y/partitions;z", 9, 5),
        (204, "PUT", f"{topic}-plain", None, 1),
        (204, "DELETE", f"{topic}-plain?force=true", None, 1),
        (204, "POST", f"{topic}/createMissedPartitions", None, 9),
        (204, "DELETE", f"{topic}/partitions/", None, 9),
    ):
        assert proxied.ask(method, path, body).status == status, path
        full -= cost
    assert not admin.exists(name)
    # What was given back shows with the next decision.
    assert proxied.ask("PUT", f"{topic}-last").status == 204
    assert tokens() == full - 1


def test_pulsars_own_and_weirs_own_side_by_side(weir: Weir, admin: Admin) -> None:
    """Groups and dispatch rates are Weir's, all else Pulsar's; stats are Pulsar's with Weir's fields."""
    proxied = Admin(weir.url)
    topic = admin.topic(f"persistent://public/default/{fresh('side')}")
    path, rate = topic.replace("://", "/"), {"dispatchThrottlingRateInMsg": 5}
    assert proxied.do("GET", "tenants") == admin.do("GET", "tenants")
    assert proxied.do("PUT", "resourcegroups/rg1", {"publishRateInMsgs": 5}) is None
    assert proxied.do("GET", "resourcegroups") == ["rg1"] and admin.do("GET", "resourcegroups") == []
    assert proxied.do("POST", "namespaces/public/default/dispatchRate", rate) is None
    assert admin.do("GET", "namespaces/public/default/dispatchRate") is None
    assert proxied.do("DELETE", "namespaces/public/default/dispatchRate") is None
    stats = proxied.do("GET", f"{path}/stats")
    assert stats["publishers"] == [] and "storageSize" in stats
    assert proxied.ask("GET", f"{path}-none/stats").status == 404
    names = proxied.do("GET", "brokers/configuration")
    assert "dispatchThrottlingRateInMsg" in names and "allowAutoTopicCreation" in names
    assert proxied.ask("POST", "brokers/configuration/dispatchThrottlingRateInMsg/5").status == 200
    assert proxied.ask("POST", "brokers/configuration/brokerShutdownTimeoutMs/60000").status == 200
    values = proxied.do("GET", "brokers/configuration/values")
    assert (values["dispatchThrottlingRateInMsg"], values["brokerShutdownTimeoutMs"]) == ("5", "60000")
    assert "dispatchThrottlingRateInMsg" not in admin.do("GET", "brokers/configuration/values")
    found = proxied.do("GET", f"/lookup/v2/topic/{path}")
    assert (found["brokerUrl"], found["httpUrl"]) == ("pulsar://127.0.0.1:16650", weir.url)


def test_backlog_quotas_are_weirs_and_stats_pulsars(weir: Weir, own: Cluster, admin: Admin) -> None:
    """What Pulsar holds under these names is neither shown nor changed; its stats get Weir's limits."""
    proxied = Admin(weir.url)
    policy = "producer_request_hold"
    topic, parted = admin.topic(fresh("quota")), admin.topic(fresh("parted"), 2)
    path, wide = (name.replace("://", "/") for name in (topic, parted))
    pulsars = {"limitSize": 5_000_000, "limitTime": -1, "policy": policy}
    assert admin.ask("POST", "namespaces/public/default/backlogQuota", pulsars).status == 204
    held = admin.do("GET", "namespaces/public/default/backlogQuotaMap")
    assert proxied.do("GET", "namespaces/public/default/backlogQuotaMap") == {}
    until(
        lambda: proxied.do("GET", f"{path}/stats")["backlogQuotaLimitSize"] == 5_000_000, what="Pulsar's own"
    )
    quota = {"limitTime": 3_600, "policy": policy}
    kind = "backlogQuotaType=message_age"
    assert proxied.ask("POST", f"namespaces/public/default/backlogQuota?{kind}", quota).status == 204
    assert proxied.ask("POST", f"{path}/backlogQuota", {"limitSize": 700, "policy": policy}).status == 204
    shown = {"limit": 700, "limitSize": 700, "limitTime": -1, "policy": policy}
    assert proxied.do("GET", f"{path}/backlogQuotaMap") == {"destination_storage": shown}
    assert admin.do("GET", "namespaces/public/default/backlogQuotaMap") == held
    stats, its = proxied.do("GET", f"{path}/stats"), admin.do("GET", f"{path}/stats")
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (700, 3_600)
    assert (its["backlogQuotaLimitSize"], its["backlogQuotaLimitTime"]) == (5_000_000, -1)
    assert stats | {name: its[name] for name in LIMITS.values()} == its
    stats = proxied.do("GET", f"{wide}/partitioned-stats")
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (5_000_000, 3_600)
    assert {part["backlogQuotaLimitTime"] for part in stats["partitions"].values()} == {3_600}
    assert (
        proxied.ask("GET", f"{wide}/stats").status == proxied.ask("GET", f"{path}/partitioned-stats").status
    )
    now = time.time_ns() // 1_000_000
    records = decision(topic, ts=now), eviction("slow", topic=topic, ts=now)
    put(own.kafka.bootstrap, own.topics.decisions, *records)

    def evicted() -> bool:
        seen = proxied.do("GET", f"{path}/stats").get("evictionsBySizeQuota", {})
        return bool(seen.get("msgs") == 4)

    until(evicted, what="the eviction")
    # Pulsar says -1 and no name: it has not looked.
    seen = proxied.do("GET", f"{path}/stats")
    assert seen["oldestBacklogMessageAgeSeconds"] == 7
    assert seen["oldestBacklogMessageSubscriptionName"] == "slow"
    for asked in (admin, proxied):
        assert asked.ask("DELETE", "namespaces/public/default/backlogQuota").status == 204
    assert proxied.ask("DELETE", f"namespaces/public/default/backlogQuota?{kind}").status == 204


@pytest.mark.soak
def test_pulsar_admin_reads_through_it(weir: Weir, admin: Admin, tmp_path: Path) -> None:
    """Lists and stats, as from Pulsar itself."""
    topic = admin.topic(f"persistent://public/default/{fresh('read')}")
    done = pulsar_admin(tmp_path, weir.url, "topics", "list", "public/default")
    assert done.returncode == 0 and topic in done.stdout
    done = pulsar_admin(tmp_path, weir.url, "topics", "stats", topic)
    assert "storageSize" in json.loads(done.stdout)


@pytest.mark.soak
def test_users_are_charged_by_their_tokens(cluster: Cluster, tmp_path: Path) -> None:
    """Each their own quota; a forged token is refused by Pulsar and uses nobody's quota up."""
    with (
        LocalPulsar(tmp_path / "pulsar", token=token("root"), properties=checking("ann", "bob")) as pulsar,
        apart(cluster, "users") as own,
    ):
        own.policies.put(
            "quotas[user=<default>]", {"controller_mutation_rate": 0.1, "controller_mutation_burst": 5}
        )
        words = ("--upstream", pulsar.admin)
        with Weir(own.kafka.bootstrap, tmp_path / "admin", own.topics.prefix, *words) as weir:

            def create(bearer: str) -> int:
                path = f"persistent/public/default/{fresh('users')}/partitions"
                return Admin(weir.url, bearer).ask("PUT", path, 9).status

            assert create(token("ann", b"x" * 32)) == 401
            assert create("") == 401
            assert create(token("ann")) == 204
            assert create(token("ann")) == 429
            assert create(token("ann", b"x" * 32)) == 401
            assert create(token("bob")) == 204
            # Who knows nobody's name is held by what is nobody's.
            refused = Admin(weir.url, token("bob")).ask("PUT", "persistent/public/default/x/partitions", 1)
            assert refused.status == 429 and "user=bob" in refused.body["reason"]
            done = pulsar_admin(
                tmp_path, weir.url, "--auth-plugin", CLIENT_PLUGIN, "--auth-params", f"token:{token('ann')}",
                "topics", "create-partitioned-topic", f"public/default/{fresh('users')}", "-p", "3",
            )  # fmt: skip
            assert done.returncode == 1 and "user=ann" in done.stderr
