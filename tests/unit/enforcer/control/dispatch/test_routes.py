"""The endpoints of dispatch limits, over a store in memory."""

import time

import pytest
from admin_api_kit import answer, served
from delivery_kit import decide, deliver
from fastapi.testclient import TestClient

N = "/admin/v2/namespaces/acme/orders"
P = "/admin/v2/persistent/acme/orders/t1"
BROKER = "/admin/v2/brokers/configuration"
FULL = {
    "dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False, "ratePeriodInSecond": 1,
}  # fmt: skip
PLACES = (
    f"{N}/dispatchRate", f"{N}/subscriptionDispatchRate", f"{P}/dispatchRate",
    f"{P}/subscriptionDispatchRate", f"{P}/sub1/dispatchRate", f"{P}/a%2Fb%25c%2Bd+e%0Af/dispatchRate",
)  # fmt: skip


@pytest.mark.parametrize("path", PLACES)
def test_a_rate_lives_as_in_pulsar(api: TestClient, path: str) -> None:
    """Set, replaced as a whole, removed; what pulsar-admin always sends and means nothing is left out."""
    assert answer(api, "GET", path) == (200, "")
    assert answer(api, "DELETE", path) == (204, "")
    assert answer(api, "POST", path, FULL) == (204, "")
    kept = {name: value for name, value in FULL.items() if name != "relativeToPublishRate"}
    assert answer(api, "GET", path) == (200, kept)
    assert answer(api, "POST", path, {"dispatchThrottlingRateInByte": 5}) == (204, "")
    assert answer(api, "GET", path) == (200, {"dispatchThrottlingRateInByte": 5})
    for body in (b"", b"xx", {"dispatchThrottlingRateInMsg": 0}, FULL | {"relativeToPublishRate": True}):
        status, said = answer(api, "POST", path, body)
        assert (status, list(said)) == (400, ["reason"])
    assert answer(api, "GET", path) == (200, {"dispatchThrottlingRateInByte": 5})
    assert answer(api, "DELETE", path) == (204, "")
    assert answer(api, "GET", path) == (200, "")


def test_places_are_those_of_the_policies() -> None:
    """Entries as a file has them; names of consumer groups may hold slashes and newlines."""
    made, api = served()
    for rate, path in enumerate(PLACES, 1):
        assert answer(api, "POST", path, {"dispatchThrottlingRateInMsg": rate}) == (204, "")
    rates = [{"dispatchThrottlingRateInMsg": rate} for rate in range(7)]
    assert made.store.entries == {
        "namespaces.acme/orders": {"dispatchRate": rates[1], "subscriptionDispatchRate": rates[2]},
        "topics.persistent://acme/orders/t1": {
            "dispatchRate": rates[3],
            "subscriptionDispatchRate": rates[4],
            "subscriptions": {"sub1": {"dispatchRate": rates[5]}, "a/b%c+d e\nf": {"dispatchRate": rates[6]}},
        },
    }
    for path in PLACES:
        assert answer(api, "DELETE", path) == (204, "")
    assert made.store.entries == {}


def test_a_slash_is_no_part_of_a_topics_name(api: TestClient) -> None:
    """So it does not move into the subscription's: the rate would be another topic's."""
    said = {"reason": "Topic name is not valid"}
    path = "/admin/v2/persistent/acme/orders/t1%2Fx/sub1/dispatchRate"
    assert answer(api, "POST", path, FULL) == (412, said)


def test_what_applies_can_be_asked(api: TestClient) -> None:
    """Of topics and subscriptions; a namespace has nothing above it."""
    assert answer(api, "GET", f"{P}/dispatchRate?applied=true")[1]["dispatchThrottlingRateInMsg"] == -1
    assert answer(api, "POST", f"{N}/subscriptionDispatchRate", FULL) == (204, "")
    for path in (f"{P}/subscriptionDispatchRate", f"{P}/sub1/dispatchRate"):
        assert answer(api, "GET", f"{path}?applied=TRUE") == (200, FULL)
        assert answer(api, "GET", f"{path}?applied=false&isGlobal=false") == (200, "")
        assert answer(api, "GET", f"{path}?applied=maybe")[0] == 400


def test_there_are_no_global_policies(api: TestClient) -> None:
    """Asked for they are refused, not taken for this cluster's own."""
    for method in ("GET", "POST", "DELETE"):
        status, said = answer(api, method, f"{P}/dispatchRate?isGlobal=true", FULL)
        assert (status, "one cluster" in said["reason"]) == (412, True)
        assert answer(api, method, f"{P}/dispatchRate?isGlobal=1", FULL)[0] == 400


def test_the_brokers_settings(api: TestClient) -> None:
    """200 for changes, as Pulsar."""
    status, names = answer(api, "GET", BROKER)
    assert (status, "dispatchThrottlingRatePerTopicInMsg" in names) == (200, True)
    path = f"{BROKER}/dispatchThrottlingRatePerTopicInMsg"
    assert answer(api, "POST", f"{path}/5") == (200, "")
    assert answer(api, "GET", f"{BROKER}/values") == (200, {"dispatchThrottlingRatePerTopicInMsg": "5"})
    assert answer(api, "GET", f"{P}/dispatchRate?applied=true")[1]["dispatchThrottlingRateInMsg"] == 5
    assert answer(api, "POST", f"{path}/-1") == (200, "")
    for value in ("0", "abc"):
        assert answer(api, "POST", f"{path}/{value}")[0] == 400
    for method, wrong in (("POST", "nosuch/5"), ("DELETE", "nosuch"), ("DELETE", "values")):
        assert answer(api, method, f"{BROKER}/{wrong}")[0] == 412
    for _ in range(2):
        assert answer(api, "DELETE", path) == (200, "")
    assert answer(api, "GET", f"{BROKER}/values") == (200, {})


def test_stats_of_a_topic() -> None:
    """404 while nothing was read of it; what pulsar-admin asks for besides is passed over."""
    made, api = served()
    missing = {"reason": "Topic persistent://acme/orders/t1 not found"}
    assert answer(api, "GET", f"{P}/stats") == (404, missing)
    assert answer(api, "GET", "/admin/v2/persistent/acme/a%20b/t1/stats")[0] == 412
    answer(api, "POST", f"{P}/sub1/dispatchRate", {"dispatchThrottlingRateInMsg": 10})
    now = time.time_ns() // 1_000_000
    names = {"topic": "persistent://acme/orders/t1", "subscription": "sub1"}
    deliver(made.deliveries, now, msgs=1_000, **names)
    decide(made.deliveries, ts=now, acquired={"subscription": {"msgs": 1_000, "bytes": None}}, **names)
    status, stats = answer(api, "GET", f"{P}/stats?getPreciseBacklog=false&subscriptionBacklogSize=true")
    own = stats["subscriptions"]["sub1"]
    assert (status, own["msgOutCounter"], own["available"]["msgs"]) == (200, 1_000, 0)
    assert own["resumeTime"] > now + 90_000
    assert own["dispatchThrottledMsgEventsBySubscriptionLimit"] == 1


def test_the_description_has_the_fields_of_a_rate(api: TestClient) -> None:
    """Those of the policies' own schema, and what pulsar-admin sends besides."""
    described = api.get("/openapi.json").json()["paths"]
    post = described["/admin/v2/namespaces/{tenant}/{namespace}/dispatchRate"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) >= set(FULL)
    own = described["/admin/v2/persistent/{tenant}/{namespace}/{topic}/{subscription}/dispatchRate"]
    assert {"applied", "isGlobal"} <= {given["name"] for given in own["get"]["parameters"]}
