"""In front of another admin API: what is Weir's stays, all else goes there; tokens stay where they belong."""

import base64
import time
from dataclasses import replace
from typing import Any

import pytest
from admin_api_kit import client, parts
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from enforcer.admin.auth import Grant, Role, digest_of
from enforcer.admin.backlog import filled as backlog_filled
from enforcer.admin.dispatch import filled as dispatch_filled
from enforcer.admin.dispatch.records import dispatch_of
from enforcer.admin.parts import Parts
from streaming.contract.usage_events import dispatch_usage

TOPIC = "/admin/v2/persistent/acme/orders/t1"
CONFIGURATION = "/admin/v2/brokers/configuration"
ADMIN = Grant(name="ops", role=Role.ADMIN, digest=digest_of("secret"))


async def beyond(scope: Scope, receive: Receive, send: Send) -> None:
    """Says that it was asked, and with what."""
    request = Request(scope, receive)
    told = {"beyond": request.url.path, "credential": request.headers.get("authorization")}
    await JSONResponse(told, 418)(scope, receive, send)


def front(*grants: Grant, address: str = "127.0.0.1") -> tuple[Parts, TestClient]:
    """The API in front of another one."""
    made = replace(parts(*grants), beyond=beyond)
    return made, client(made, address)


@pytest.mark.parametrize(
    ("method", "path", "ours"),
    [
        ("GET", "/admin/v2/resourcegroups", True),
        ("PUT", "/admin/v2/resourcegroup/rg1", True),
        ("GET", "/admin/v2/namespaces/acme/orders/dispatchRate", True),
        ("GET", "/admin/v2/namespaces/acme/orders/resourcegroup", True),
        ("GET", f"{TOPIC}/subscriptionDispatchRate", True),
        ("GET", f"{TOPIC}/a%2Fb/dispatchRate", True),
        ("POST", f"{CONFIGURATION}/dispatchThrottlingRateInMsg/5", True),
        ("DELETE", f"{CONFIGURATION}/dispatchThrottlingRateInMsg", True),
        ("GET", "/docs", True),
        ("GET", "/openapi.json", True),
        ("POST", f"{CONFIGURATION}/brokerShutdownTimeoutMs/5", False),
        ("DELETE", f"{CONFIGURATION}/brokerShutdownTimeoutMs", False),
        ("GET", CONFIGURATION, False),
        ("GET", f"{CONFIGURATION}/values", False),
        ("GET", f"{TOPIC}/stats", False),
        ("GET", f"{TOPIC}/partitioned-stats", False),
        ("GET", f"{TOPIC}/backlogQuotaMap", True),
        ("POST", f"{TOPIC}/backlogQuota", True),
        ("DELETE", "/admin/v2/namespaces/acme/orders/backlogQuota", True),
        ("GET", "/admin/v2/namespaces/acme/orders/backlogQuotaMap", True),
        ("PUT", f"{TOPIC}/backlogSize", False),
        ("PATCH", "/admin/v2/resourcegroups", False),
        ("PUT", "/admin/v2/tenants/acme", False),
        ("PUT", TOPIC, False),
        ("GET", "/metrics", False),
    ],
)
def test_whose_a_request_is(method: str, path: str, ours: bool) -> None:
    """By method and path."""
    _, api = front()
    assert (api.request(method, path, json={}).status_code == 418) is not ours


def test_who_may_ask_what_is_beyond_says_the_api_there() -> None:
    """Without tokens from anywhere, and with tokens without one; Weir's own stays closed."""
    for grants, refused in (((), 403), ((ADMIN,), 401)):
        _, api = front(*grants, address="192.0.2.1")
        assert api.put("/admin/v2/tenants/acme", json={}).status_code == 418
        assert api.get("/admin/v2/resourcegroups").status_code == refused


def test_credentials_of_others_pass_and_weirs_do_not() -> None:
    """Neither as bearer nor as password: the API behind would see it."""
    _, api = front(ADMIN)
    other = {"authorization": "Bearer pulsars"}
    assert api.get("/x", headers=other).json()["credential"] == "Bearer pulsars"
    password = base64.b64encode(b"any:secret").decode()
    for scheme in ("Bearer secret", "bearer  secret ", f"Basic {password}"):
        answer = api.get("/x", headers={"authorization": scheme})
        assert answer.status_code == 401 and "Weir" in answer.json()["reason"]
    assert api.get("/x", headers={"authorization": "Basic !"}).status_code == 418
    assert api.get("/admin/v2/resourcegroups", headers={"authorization": "Bearer secret"}).json() == []


def test_tokens_may_be_shared() -> None:
    """One that both know is one setting less for a tool; what is Weir's own still needs it."""
    api = client(replace(parts(ADMIN, share_tokens=True), beyond=beyond))
    both = {"authorization": "Bearer secret"}
    assert api.get("/x", headers=both).json()["credential"] == "Bearer secret"
    assert api.get("/admin/v2/resourcegroups", headers=both).json() == []
    assert api.get("/admin/v2/resourcegroups", headers={"authorization": "Bearer x"}).status_code == 401


def test_requests_beyond_are_counted_as_such() -> None:
    """One route for all of them."""
    made, api = front()
    api.get("/any")
    labels = {"method": "GET", "route": "upstream", "code": "418"}
    assert made.metrics.registry.get_sample_value("weir_admin_requests_total", labels) == 1


def fill(made: Parts, path: str, value: Any, **names: str) -> Any:
    """An answer, filled in."""
    fills = {**dispatch_filled.fills(made), **backlog_filled.fills(made)}
    return fills[path](names, value, "proxy")


def test_stats_are_pulsars_with_what_limits_dispatch() -> None:
    """What the broker counted stays; subscriptions that it does not know are not shown."""
    made, api = front()
    rate = {"dispatchThrottlingRateInMsg": 10}
    assert api.post(f"{TOPIC}/dispatchRate", json=rate).status_code == 204
    topic = "persistent://acme/orders/t1"
    path = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats"
    names = {"tenant": "acme", "namespace": "orders", "topic": "t1"}
    told = {
        "msgOutCounter": 7, "storageSize": 5, "dispatchThrottledMsgEventsByTopicLimit": 0,
        "subscriptions": {"s1": {"msgOutCounter": 6, "msgBacklog": 1}, "s2": {"msgBacklog": 2}},
    }  # fmt: skip
    assert fill(made, path, told, **names) == told
    now_ms = time.time_ns() // 1_000_000
    for subscription in ("s1", "s3"):
        who = {"broker": "b", "topic": topic, "subscription": subscription, "proxy": "p1"}
        usage = {"type": "dispatch_usage", **who, "msgs": 30, "bytes": 300, "entries": 1, "backlog": True}
        made.deliveries.take_usage(dispatch_usage(usage, "d", now_ms), "p1", now_ms)
        decision = {
            "type": "dispatch", "id": "d", "ts": now_ms, **who, "available": {"msgs": 0, "bytes": None},
            "throttle_time_ms": 3_000, "limited_by": {"level": "topic", "dimension": "msgs"},
            "acquired": {"topic": {"msgs": 30, "bytes": 0}}, "entries_to_read": 0, "shadow": False,
            "ttl_ms": 1_000,
        }  # fmt: skip
        made.deliveries.take_decision(dispatch_of(decision))
    filled = fill(made, path, told, **names)
    assert (filled["msgOutCounter"], filled["storageSize"]) == (7, 5)
    assert filled["dispatchThrottledMsgEventsByTopicLimit"] > 0 and filled["debt"]["msgs"] > 0
    assert sorted(filled["subscriptions"]) == ["s1", "s2"]
    first = filled["subscriptions"]["s1"]
    assert (first["msgOutCounter"], first["msgBacklog"]) == (6, 1)
    assert first["limitedBy"] == {"level": "topic", "dimension": "msgs"}
    assert filled["subscriptions"]["s2"] == {"msgBacklog": 2}
    assert fill(made, path, "no object", **names) == "no object"


def test_the_brokers_settings_are_both() -> None:
    """Of ours the value is Weir's, of the others the broker's."""
    made, api = front()
    assert api.post(f"{CONFIGURATION}/dispatchThrottlingRateInMsg/5", json={}).status_code == 200
    names = fill(made, CONFIGURATION, ["other", "dispatchThrottlingRateInMsg"])
    assert names == sorted(set(names)) and {"other", "dispatchThrottlingRateInMsg"} <= set(names)
    values = {"other": "1", "dispatchThrottlingRateInMsg": "7", "dispatchThrottlingRateInByte": "8"}
    assert fill(made, f"{CONFIGURATION}/values", values) == {"other": "1", "dispatchThrottlingRateInMsg": "5"}
    assert fill(made, CONFIGURATION, None) is None and fill(made, f"{CONFIGURATION}/values", []) == []
