"""The endpoints of backlogs, over a store in memory."""

import time

import pytest
from admin_api_kit import answer, served
from admin_backlog_kit import T, decision, report, take
from delivery_kit import deliver
from fastapi.testclient import TestClient

N = "/admin/v2/namespaces/acme/orders"
P = "/admin/v2/persistent/acme/orders/t1"
HOLD = "producer_request_hold"
SIZE = {"limit": 100, "limitSize": 100, "limitTime": -1, "policy": HOLD}


@pytest.mark.parametrize("path", [N, P])
def test_a_quota_lives_as_in_pulsar(api: TestClient, path: str) -> None:
    """Of each type by itself: set, shown, replaced, removed; again is no error."""
    age = f"{path}/backlogQuota?backlogQuotaType=message_age"
    assert answer(api, "GET", f"{path}/backlogQuotaMap") == (200, {})
    assert answer(api, "DELETE", age) == (204, "")
    assert answer(api, "POST", f"{path}/backlogQuota", SIZE) == (204, "")
    assert answer(api, "POST", age, {"limitTime": 60, "limitSize": -1, "policy": HOLD}) == (204, "")
    held = {
        "destination_storage": SIZE,
        "message_age": {"limit": -1, "limitSize": -1, "limitTime": 60, "policy": HOLD},
    }
    assert answer(api, "GET", f"{path}/backlogQuotaMap") == (200, held)
    for body in (b"", b"xx", {"policy": HOLD}, {"limitSize": 5}, {"limitSize": 5, "policy": "bogus"}):
        status, said = answer(api, "POST", f"{path}/backlogQuota", body)
        assert (status, list(said)) == (400, ["reason"])
    bogus = f"{path}/backlogQuota?backlogQuotaType=bogus"
    assert answer(api, "POST", bogus, SIZE)[0] == answer(api, "DELETE", bogus)[0] == 404
    assert answer(api, "GET", f"{path}/backlogQuotaMap") == (200, held)
    for _ in range(2):
        assert answer(api, "DELETE", f"{path}/backlogQuota") == (204, "")
        assert answer(api, "DELETE", age) == (204, "")
    assert answer(api, "GET", f"{path}/backlogQuotaMap") == (200, {})


def test_what_applies_to_a_topic_can_be_asked(api: TestClient) -> None:
    """Both types always; of a namespace nothing is above it."""
    assert answer(api, "POST", f"{N}/backlogQuota", SIZE) == (204, "")
    status, applied = answer(api, "GET", f"{P}/backlogQuotaMap?applied=true&isGlobal=false")
    assert (status, applied["destination_storage"], applied["message_age"]["limitTime"]) == (200, SIZE, -1)
    assert answer(api, "GET", f"{P}/backlogQuotaMap?applied=false") == (200, {})
    assert answer(api, "GET", f"{P}/backlogQuotaMap?applied=maybe")[0] == 400
    for method, path in (("GET", "backlogQuotaMap"), ("POST", "backlogQuota"), ("DELETE", "backlogQuota")):
        assert answer(api, method, f"{P}/{path}?isGlobal=true", SIZE)[0] == 412
        assert answer(api, method, f"{P}-partition-1/{path}", SIZE)[0] == 412
        assert answer(api, method, f"/admin/v2/namespaces/a%20b/orders/{path}", SIZE)[0] == 412


def test_stats_of_a_topic() -> None:
    """404 while nothing was read of it, or long ago; a limit that is set shows at once."""
    made, api = served()
    now = time.time_ns() // 1_000_000
    missing = {"reason": f"Topic {T} not found"}
    assert answer(api, "GET", f"{P}/stats") == (404, missing)
    take(made.backlogs, [decision(ts=now - 200_000)])
    assert answer(api, "GET", f"{P}/stats") == (404, missing)
    take(made.backlogs, [report(T, ("slow", -1), ts=now), decision(ts=now)])
    status, stats = answer(
        api, "GET", f"{P}/stats?subscriptionBacklogSize=true&getEarliestTimeInBacklog=true"
    )
    assert (status, stats["storageSize"], stats["backlogQuotaLimitSize"]) == (200, 1_050, -1)
    assert answer(api, "POST", f"{P}/backlogQuota", SIZE) == (204, "")
    assert answer(api, "GET", f"{P}/stats")[1]["backlogQuotaLimitSize"] == 100
    partitioned = {"reason": f"Partitioned Topic {T} not found"}
    assert answer(api, "GET", f"{P}/partitioned-stats") == (404, partitioned)
    assert answer(api, "GET", "/admin/v2/persistent/acme/a%20b/t1/partitioned-stats")[0] == 412


def test_stats_join_deliveries_and_backlogs() -> None:
    """Subscriptions that one side knows too."""
    made, api = served()
    now = time.time_ns() // 1_000_000
    take(made.backlogs, [report(T, ("slow", -1), ("both", 3), ts=now), decision(ts=now)])
    for subscription in ("both", "new"):
        deliver(made.deliveries, now, topic=T, subscription=subscription)
    status, stats = answer(api, "GET", f"{P}/stats")
    assert (status, stats["msgOutCounter"], stats["backlogSize"]) == (200, 20, 1_050)
    assert sorted(stats["subscriptions"]) == ["both", "new", "slow"]
    both = stats["subscriptions"]["both"]
    assert (both["msgOutCounter"], both["msgBacklog"]) == (10, 8)
    assert "msgOutCounter" not in stats["subscriptions"]["slow"]


def test_stats_of_a_partitioned_topic() -> None:
    """404 at `stats`, where its partitions are topics; deliveries are those of the topic."""
    made, api = served()
    now = time.time_ns() // 1_000_000
    names = [f"{T}-partition-{number}" for number in range(2)]
    take(made.backlogs, [one(name, ts=now) for name in names for one in (report, decision)])
    deliver(made.deliveries, now, topic=T, subscription="s")
    status, said = answer(api, "GET", f"{P}/stats")
    assert status == 404 and "see partitioned-stats" in said["reason"]
    assert answer(api, "GET", f"{P}-partition-1/stats")[1]["storageSize"] == 1_050
    status, stats = answer(api, "GET", f"{P}/partitioned-stats")
    assert (status, stats["storageSize"], stats["msgOutCounter"]) == (200, 2_100, 10)
    assert sorted(stats["partitions"]) == names
    without = answer(api, "GET", f"{P}/partitioned-stats?perPartition=false")[1]
    assert (without["partitions"], without["metadata"]) == ({}, {"partitions": 2, "deleted": False})
    assert answer(api, "GET", f"{P}/partitioned-stats?perPartition=no")[0] == 400
    assert answer(api, "GET", f"{P}-partition-1/partitioned-stats")[0] == 404


def test_the_description_names_the_fields(api: TestClient) -> None:
    """Those that pulsar-admin sends and ours; that only the policy must be there is said of both types."""
    described = api.get("/openapi.json").json()["paths"]
    post = described["/admin/v2/namespaces/{tenant}/{namespace}/backlogQuota"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {*SIZE, "actions", "allow_delete_records"}
    (kind,) = (each for each in post["parameters"] if each["name"] == "backlogQuotaType")
    assert kind["schema"]["enum"] == ["destination_storage", "message_age"]
    assert {"400", "404", "412"} <= set(post["responses"])
