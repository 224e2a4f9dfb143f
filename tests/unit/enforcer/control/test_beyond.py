"""In front of another admin API: what is Weir's stays, all else goes there; tokens stay where they belong."""

import asyncio
import base64
import time
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import quote, unquote

import pytest
from admin_api_kit import MemoryStore, client, parts, scope_of, status_of
from delivery_kit import decide, deliver
from each_kit import each
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from property_kit import tries
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.api import create_app
from enforcer.control.backlog.filled_answers import fills
from enforcer.control.parts import Parts

TOPIC = "/admin/v2/persistent/acme/orders/t1"
CONFIGURATION = "/admin/v2/brokers/configuration"
ADMIN = Grant(name="ops", role=Role.OPERATOR, digest=digest_of("secret"))


async def beyond(scope: Scope, receive: Receive, send: Send) -> None:
    """Says that it was asked, and with what."""
    request = Request(scope, receive)
    told = {"beyond": request.url.path, "credential": request.headers.get("authorization")}
    await JSONResponse(told, 418)(scope, receive, send)


def front(*grants: Grant, address: str = "127.0.0.1") -> tuple[Parts, TestClient]:
    """The API in front of another one."""
    made = replace(parts(*grants), beyond=beyond)
    return made, client(made, address)


one_front = cache(front)


@each(
    ("method", "path", "ours"),
    [
        ("GET", "/admin/v2/resourcegroups", True), ("PUT", "/admin/v2/resourcegroup/rg1", True),
        ("GET", "/admin/v2/namespaces/acme/orders/dispatchRate", True),
        ("GET", "/admin/v2/namespaces/acme/orders/resourcegroup", True),
        ("GET", f"{TOPIC}/subscriptionDispatchRate", True), ("GET", f"{TOPIC}/a%2Fb/dispatchRate", True),
        ("POST", f"{CONFIGURATION}/dispatchThrottlingRateInMsg/5", True),
        ("DELETE", f"{CONFIGURATION}/dispatchThrottlingRateInMsg", True), ("GET", "/docs", True),
        ("GET", "/", True), ("GET", "/console/app.js", True), ("PUT", "/weir/v1/policies", True),
        ("GET", "/openapi.json", True), ("POST", f"{CONFIGURATION}/brokerShutdownTimeoutMs/5", False),
        ("DELETE", f"{CONFIGURATION}/brokerShutdownTimeoutMs", False), ("GET", CONFIGURATION, False),
        ("GET", f"{CONFIGURATION}/values", False), ("GET", f"{TOPIC}/stats", False),
        ("GET", f"{TOPIC}/partitioned-stats", False), ("GET", f"{TOPIC}/backlogQuotaMap", True),
        ("POST", f"{TOPIC}/backlogQuota", True),
        ("DELETE", "/admin/v2/namespaces/acme/orders/backlogQuota", True),
        ("GET", "/admin/v2/namespaces/acme/orders/backlogQuotaMap", True),
        ("PUT", f"{TOPIC}/backlogSize", False), ("PATCH", "/admin/v2/resourcegroups", False),
        ("PUT", "/admin/v2/tenants/acme", False), ("PUT", TOPIC, False), ("GET", "/metrics", False),
    ],
)
def test_whose_a_request_is(method: str, path: str, ours: bool) -> None:
    """By method and path."""
    _, api = one_front()
    assert (api.request(method, path, json={}).status_code == 418) is not ours


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("/admin/v2/resourcegroups/rg1", "PUT", 200), (f"{TOPIC}/a%2Fb/dispatchRate", "POST", 200),
        ("/admin/v2/resourcegroups/", "PATCH", 418), ("/admin/v2/tenants/acme", "PUT", 418),
    ],
)
def test_a_browser_that_asks_first_is_told_by_whose_it_is(path: str, asked: str, status: int) -> None:
    """Else a listed page could change nothing: Pulsar does not know that it is one."""
    api = client(replace(parts(allowed_origins=["http://ours"]), beyond=beyond))
    headers = {"origin": "http://ours", "access-control-request-method": asked}
    assert api.request("OPTIONS", path, headers=headers).status_code == status


def asked(method: str, target: str) -> int:
    """The status that a request's target as it stands on the wire is answered with, while nothing is set."""
    made, api = one_front()
    vars(made.store).update(vars(MemoryStore()))

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    scope = scope_of(target, method, (b"content-type", b"application/json"))
    return asyncio.run(status_of(api.app, scope, receive))


OWN = (
    ("GET", "/admin/v2/resourcegroups"), ("PUT", "/admin/v2/resourcegroups/rg1"),
    ("DELETE", "/admin/v2/resourcegroup/rg1"), ("POST", "/admin/v2/namespaces/acme/orders/resourcegroup/rg1"),
    ("POST", "/admin/v2/namespaces/acme/orders/backlogQuota"),
    ("GET", "/admin/v2/namespaces/acme/orders/backlogQuotaMap"),
    ("DELETE", "/admin/v2/namespaces/acme/orders/dispatchRate"),
    ("POST", f"{TOPIC}/subscriptionDispatchRate"), ("POST", f"{TOPIC}/a%2Fb/dispatchRate"),
    ("POST", f"{CONFIGURATION}/dispatchThrottlingRateInMsg/5"),
)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str, bool]:
    """A method, an own endpoint as somebody may write it, and whether only letters are written otherwise."""
    method, path = draw(st.sampled_from(OWN))
    exact, segments = True, []
    for segment in path.split("/")[1:]:
        known = unquote(segment)
        encoded = draw(st.sets(st.integers(0, len(known) - 1), max_size=3))
        text = "".join(
            f"%{ord(letter):02{draw(st.sampled_from('xX'))}}" if at in encoded else quote(letter, safe="")
            for at, letter in enumerate(known)
        )
        extra = draw(st.sampled_from(["", "", "", ";", ";x", ";x=1;y", "/", "//", "/;x"]))
        exact &= not extra
        segments.append(text + extra)
    before = draw(st.sampled_from(["", "", "", "/", "http://x", "HTTPS://u@x:1", "http://"]))
    after = draw(st.sampled_from(["", "", "", "/", "#x", "?a=/b", "/./", "/%2e"]))
    exact &= not before and after in ("", "?a=/b")
    return method, f"{before}/{'/'.join(segments)}{after}", exact


@tries(300)
@given(spellings())
def test_no_spelling_of_weirs_own_goes_beyond(spelling: tuple[str, str, bool]) -> None:
    """Pulsar would take most of them for its own. Percent-encoded letters are Weir's, all else is refused."""
    method, target, exact = spelling
    status = asked(method, target)
    assert status != 418
    assert exact or status == 400 or unquote(target.partition("?")[0]) == "/admin/v2/resourcegroups/"
    assert not exact or status == asked(method, unquote(target.replace("%2F", "%252F")))


@each(
    ("method", "target"),
    [
        ("POST", "/admin/v2/persistent/acme/orders/a%2Fb/subscriptionDispatchRate"),
        ("POST", "/admin/v2/persistent/acme/orders/a%2Fb/s/dispatchRate"),
        ("GET", "/admin/v2/resourcegroups/rg1%2Fusage"),
        ("POST", "/admin/v2/namespaces/acme/or%2Fders/dispatchRate"),
        ("POST", "/admin/v2/namespaces/acme%2Forders/dispatchRate"),
        ("DELETE", "/admin/v2/persistent/acme/orders%2Ft1/dispatchRate"),
        ("POST", "/admin/v2/brokers/configuration%2FdispatchThrottlingRateInMsg/5"),
        ("POST", "/admin/v2/namespaces/acme/orders/resourcegroup%2Frg1"),
        ("POST", "/admin/v2/persistent/acme/orders/t1/s;x/dispatchRate"),
        ("POST", "/admin/v2/persistent/acme/orders/t1//s/dispatchRate"),
        ("POST", "http://x/admin/v2/namespaces/acme/orders/backlogQuota"),
        ("POST", "/admin/v2/namespaces/../namespaces/acme/orders/backlogQuota"),
    ],
)
def test_what_servers_read_in_several_ways_is_refused(method: str, target: str) -> None:
    """No reading of it goes to Pulsar."""
    assert asked(method, target) == 400


def test_a_topic_with_a_slash_is_no_subscription() -> None:
    """Weir has no such topics, and Pulsar is not asked."""
    assert asked("POST", "/admin/v2/persistent/acme/orders/a%2Fb/dispatchRate") == 412


@pytest.mark.parametrize("method", ["post", "Post"])
def test_a_method_in_small_letters_is_the_same(method: str) -> None:
    """Some servers take it so; Weir's endpoints do not."""
    assert asked(method, "/admin/v2/namespaces/acme/orders/backlogQuota") == 405


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
    return fills(made)[path](names, value, "proxy")


def test_stats_are_pulsars_with_what_limits_dispatch() -> None:
    """What the broker counted stays; subscriptions that it does not know are not shown."""
    made, api = front()
    rate = {"dispatchThrottlingRateInMsg": 10}
    assert api.post(f"{TOPIC}/dispatchRate", json=rate).status_code == 204
    path = "/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats"
    names = {"tenant": "acme", "namespace": "orders", "topic": "t1"}
    told = {
        "msgOutCounter": 7, "storageSize": 5, "dispatchThrottledMsgEventsByTopicLimit": 0,
        "subscriptions": {"s1": {"msgOutCounter": 6, "msgBacklog": 1}, "s2": {"msgBacklog": 2}},
    }  # fmt: skip
    assert fill(made, path, told, **names) == told
    now_ms = time.time_ns() // 1_000_000
    for subscription in ("s1", "s3"):
        who = {"topic": "persistent://acme/orders/t1", "subscription": subscription}
        deliver(made.deliveries, now_ms, msgs=30, **who)
        limits = {"limited_by": {"level": "topic", "dimension": "msgs"}, "throttle_time_ms": 3_000}
        acquired = {"topic": {"msgs": 30, "bytes": 0}}
        decide(made.deliveries, ts=now_ms, **who, **limits, acquired=acquired)
    filled = fill(made, path, told, **names)
    assert (filled["msgOutCounter"], filled["storageSize"]) == (7, 5)
    assert filled["dispatchThrottledMsgEventsByTopicLimit"] > 0 and filled["debt"]["msgs"] > 0
    assert sorted(filled["subscriptions"]) == ["s1", "s2"]
    first = filled["subscriptions"]["s1"]
    assert (first["msgOutCounter"], first["msgBacklog"]) == (6, 1)
    assert first["limitedBy"] == {"level": "topic", "dimension": "msgs"}
    assert filled["subscriptions"]["s2"] == {"msgBacklog": 2}
    assert fill(made, path, "no object", **names) == "no object"
    for odd in (None, 5, {"s1": 7}):
        assert fill(made, path, {"subscriptions": odd}, **names)["subscriptions"] == odd


def test_the_brokers_settings_are_both() -> None:
    """Of ours the value is Weir's, of the others the broker's."""
    made, api = front()
    assert api.post(f"{CONFIGURATION}/dispatchThrottlingRateInMsg/5", json={}).status_code == 200
    names = fill(made, CONFIGURATION, ["other", "dispatchThrottlingRateInMsg"])
    assert names == sorted(set(names)) and {"other", "dispatchThrottlingRateInMsg"} <= set(names)
    values = {"other": "1", "dispatchThrottlingRateInMsg": "7", "dispatchThrottlingRateInByte": "8"}
    assert fill(made, f"{CONFIGURATION}/values", values) == {"other": "1", "dispatchThrottlingRateInMsg": "5"}
    assert fill(made, CONFIGURATION, None) is None and fill(made, f"{CONFIGURATION}/values", []) == []


def test_what_cannot_be_filled_in_yet_is_not_shown_as_pulsars() -> None:
    """503 until the policies are read, as for Weir's own."""
    made = parts()
    made.store.down = True

    async def filling(_scope: Scope, _receive: Receive, _send: Send) -> None:
        fill(made, f"{CONFIGURATION}/values", {})

    answer = client(replace(made, beyond=filling)).get(f"{CONFIGURATION}/values")
    assert (answer.status_code, answer.json()) == (503, {"reason": "Kafka does not answer"})
    assert answer.headers["retry-after"] == "1"


def test_an_api_behind_that_answers_nobody_leaves_room_for_weirs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for it were all that there may be: groups and the console got 503."""
    monkeypatch.setattr("enforcer.control.middleware.REQUESTS_MAX", 1)

    async def hangs(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await asyncio.Event().wait()

    async def statuses() -> list[int]:
        app, nothing = create_app(replace(parts(), beyond=hangs)), asyncio.Event()
        others, weirs = (scope_of(f"/admin/v2/{path}") for path in ("clusters", "resourcegroups"))
        waiting = asyncio.create_task(status_of(app, dict(others), nothing.wait))
        await asyncio.sleep(0)
        found = [await asyncio.wait_for(status_of(app, of, nothing.wait), 5) for of in (others, weirs)]
        waiting.cancel()
        return found

    assert asyncio.run(statuses()) == [503, 200]
