"""The admin API's endpoints, over a store in memory."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import fastapi.applications
import pytest
from admin_api_kit import answer, client, parts, report, scope_of, served, status_of
from fastapi.testclient import TestClient

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.api import create_app
from enforcer.control.entities.view import EntityView
from streaming.contract.usage_events import DIMENSIONS
from streaming.policy.policy_set import PolicySet

GROUPS = "/admin/v2/resourcegroups"
SINGULAR = "/admin/v2/resourcegroup"
ORDERS = "/admin/v2/namespaces/acme/orders/resourcegroup"
ACME = "/admin/v2/tenants/acme/resourcegroup"


def test_a_group_lives_as_in_pulsar(api: TestClient) -> None:
    """The answers of a Pulsar broker (docs/protocol_notes.md 4.4), but for its 500s."""
    assert answer(api, "GET", GROUPS) == (200, [])
    for messages, size in ((100, 5), (150, None)):
        body = {"publishRateInMsgs": messages, "publishRateInBytes": size}
        assert answer(api, "PUT", f"{GROUPS}/rg1", body) == (204, "")
    group = {"publishRateInMsgs": 150, "publishRateInBytes": 5}
    group |= {"dispatchRateInMsgs": -1, "dispatchRateInBytes": -1}
    assert answer(api, "GET", f"{GROUPS}/rg1") == (200, group)
    assert answer(api, "PUT", f"{GROUPS}/rg2", b"{}") == (204, "")
    assert answer(api, "GET", GROUPS) == (200, ["rg1", "rg2"])
    assert answer(api, "GET", f"{GROUPS}/nope") == (404, {"reason": "ResourceGroup does not exist"})
    assert answer(api, "DELETE", f"{GROUPS}/nope") == (404, {"reason": "ResourceGroup does not exist"})
    assert answer(api, "PUT", f"{GROUPS}/rg3")[0] == 400
    assert answer(api, "PUT", f"{GROUPS}/bad%20name", b"{}")[0] == 412
    assert answer(api, "DELETE", f"{GROUPS}/rg2") == (204, "")
    assert answer(api, "GET", GROUPS) == (200, ["rg1"])


def test_the_seeds_form_has_its_own_path_and_names(api: TestClient) -> None:
    """PIP-82: singular, DELETE answers 200, the answer's fields are spelt otherwise."""
    body = {"publishRateInmsgs": 1, "PublishRateInbytes": 2, "DispatchRateInbytes": 4}
    assert answer(api, "PUT", f"{SINGULAR}/rg1", body) == (204, "")
    status, shown = answer(api, "GET", f"{SINGULAR}/rg1")
    lower = {name.lower(): value for name, value in shown.items()}
    assert (status, lower["publishratelimitinmsgs"], lower["dispatchratelimitinbytes"]) == (200, 1, 4)
    assert lower["publishrateinmsgs"] == 1
    assert answer(api, "PUT", f"{SINGULAR}/rg1", shown) == (204, "")
    assert answer(api, "GET", f"{SINGULAR}/") == answer(api, "GET", SINGULAR) == (200, ["rg1"])
    assert answer(api, "DELETE", f"{SINGULAR}/rg1") == (200, "")


@pytest.mark.parametrize("path", [ORDERS, ACME])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_namespaces_and_tenants_are_attached_alike(api: TestClient, path: str, method: str) -> None:
    """POST as Pulsar, PUT as PIP-82; a group in use stays; a move takes effect in one record."""
    assert answer(api, "GET", path) == (200, "")
    assert answer(api, method, f"{path}/rg1") == (412, {"reason": "ResourceGroup does not exist"})
    for group in ("rg1", "rg2"):
        assert answer(api, "PUT", f"{GROUPS}/{group}", b"{}") == (204, "")
        assert answer(api, method, f"{path}/{group}") == (204, "")
        assert answer(api, "GET", path) == (200, group)
    assert answer(api, "DELETE", f"{GROUPS}/rg1") == (204, "")
    status, said = answer(api, "DELETE", f"{GROUPS}/rg2")
    assert (status, said["reason"].startswith("ResourceGroup is in use")) == (412, True)
    assert answer(api, "DELETE", path) == (204, "")
    assert answer(api, "DELETE", path) == (204, "")
    assert answer(api, "DELETE", f"{GROUPS}/rg2") == (204, "")


def test_every_error_has_a_reason(api: TestClient) -> None:
    """Unknown paths and methods too."""
    for method, path, code in (
        ("GET", "/admin/v2/nothing", 404), ("GET", "/nothing/", 404), ("PATCH", GROUPS, 405),
        ("PUT", f"{GROUPS}/", 405), ("GET", "/admin/v2/tenants/bad%20name/resourcegroup", 412),
        ("POST", "/admin/v2/namespaces/acme/bad%20ns/resourcegroup/rg1", 412), ("PUT", f"{GROUPS}/rg1", 400),
    ):
        status, said = answer(api, method, path)
        assert (status, list(said)) == (code, ["reason"]), path


def test_usage_of_a_group() -> None:
    """Unknown groups 404, known ones with what was reported."""
    made, api = served()
    assert answer(api, "GET", f"{GROUPS}/rg1/usage") == (404, {"reason": "ResourceGroup does not exist"})
    answer(api, "PUT", f"{GROUPS}/rg1", {"publishRateInMsgs": 100})
    made.usage.take_report(report("p1", time.time_ns() // 1_000_000, 60, throttled=7))
    for path in (GROUPS, SINGULAR):
        status, shown = answer(api, "GET", f"{path}/rg1/usage")
        assert (status, shown["limits"]["publishRateInMsgs"]) == (200, 100)
        assert shown["members"][0]["usage"]["publishRateInMsgs"] == 30.0
        assert shown["throttledMs"]["publishRateInMsgs"] == 7


def test_without_kafka_the_answer_is_503() -> None:
    """With a reason, and a word when to come back."""
    made = parts()
    made.store.down = True
    check = ("POST", "/weir/v1/policies/check", b'{"entry":"mode","value":"track"}')
    for method, path, *body in (("GET", GROUPS), ("PUT", f"{GROUPS}/rg1"), ("DELETE", ORDERS), check):
        response = client(made).request(
            method, path, content=b"".join(body) or b"{}", headers={"content-type": "application/json"}
        )
        assert (response.status_code, response.json()) == (503, {"reason": "Kafka does not answer"})
        assert response.headers["retry-after"] == "1"


async def unsent(app: Any) -> int:
    """Status of a PUT whose body never comes."""

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        raise AssertionError

    return await status_of(app, scope_of(f"{GROUPS}/rg1", "PUT"), receive)


def test_a_body_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of size, 413, and of time, 408; and so has the number of requests, 503.

    Of those the one that has waited longest for its body goes: a few addresses with slow ones kept all out.
    """
    monkeypatch.setattr("enforcer.control.parts.BODY_TIMEOUT_MS", 200)
    monkeypatch.setattr("enforcer.control.middleware.REQUESTS_MAX", 2)
    assert answer(client(parts()), "PUT", f"{GROUPS}/rg1", b" " * 65_537)[0] == 413

    async def slow() -> list[int]:
        made, begun = create_app(parts()), list[asyncio.Task[int]]()
        for _ in range(3):
            begun.append(asyncio.create_task(unsent(made)))
            await asyncio.sleep(0.02)
        return await asyncio.gather(*begun)

    assert asyncio.run(slow()) == [503, 408, 408]
    monkeypatch.setattr("enforcer.control.middleware.REQUESTS_MAX", 0)
    assert client(parts()).get(GROUPS).headers["retry-after"] == "1"


def test_a_body_that_nobody_waits_for_is_no_next_request() -> None:
    """Who was told its end instead of 100 keeps its body, and the server would read what follows as that."""
    api = client(parts())
    waits = {"expect": "100-continue", "content-type": "application/json"}
    for method, path, closes in (("PUT", "/none", True), ("PUT", f"{GROUPS}/rg1", False)):
        answered = api.request(method, path, content=b"{}", headers=waits)
        assert ("connection" in answered.headers) is closes, answered.headers
    assert "connection" not in api.put("/none").headers


def test_a_mistake_of_ours_is_one_answer() -> None:
    """500 with a reason, the traceback in the log; the next request is answered."""
    made, api = served()
    made.store.held["resourcegroups.rg1"] = None
    status, said = answer(api, "GET", f"{GROUPS}/rg1/usage")
    assert (status, list(said)) == (404, ["reason"])
    made.store.held["tenants.x"] = 5
    status, said = answer(api, "DELETE", f"{GROUPS}/rg1")
    assert (status, list(said)) == (500, ["reason"])
    assert answer(api, "GET", GROUPS)[0] == 200


def test_requests_are_counted_by_route() -> None:
    """Names of groups and unknown paths do not become series."""
    made, api = served()
    for name in ("rg1", "rg2"):
        answer(api, "GET", f"{GROUPS}/{name}")
        answer(api, "GET", f"/{name}")
    counted = made.metrics.registry.get_sample_value
    name = "weir_admin_requests_total"
    assert counted(name, {"method": "GET", "route": f"{GROUPS}/{{rg}}", "code": "404"}) == 2
    assert counted(name, {"method": "GET", "route": "unknown", "code": "404"}) == 2
    assert counted("weir_admin_request_seconds_count") == 4


def test_the_description_is_that_of_the_models(api: TestClient) -> None:
    """A body's fields with their bounds, members of a group, and that a token may be needed."""
    described = api.get("/openapi.json").json()
    put = described["paths"][f"{GROUPS}/{{rg}}"]["put"]
    body = put["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {*DIMENSIONS, "shadow", "raise"}
    assert body["additionalProperties"] is False
    assert put["security"] == [{"token": []}, {}]
    assert set(put["responses"]) == {"204", "400", "401", "403", "408", "412", "413", "503"}
    assert set(described["components"]["schemas"]) == {
        "Amounts", "BacklogStats", "Block", "BrokerStats", "Change", "Checked", "Entry", "Evictions",
        "Fault", "GroupView", "LimitedBy", "Member", "PartitionedBacklog", "Policies", "ProxyStats",
        "QuotaView", "Reason", "SubscriptionBacklog",
        "SubscriptionBrokerStats", "SubscriptionStats", "TopicStats", "Usage", "WholePartitionedStats",
        "WholeStats", "WholeSubscription",
    }  # fmt: skip


def test_the_page_needs_nothing_from_elsewhere(api: TestClient) -> None:
    """It lists every operation; the description for programs is OpenAPI 3."""
    described = api.get("/openapi.json").json()
    page = api.get("/docs")
    assert described["openapi"].startswith("3.")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "://" not in page.text and "<script" not in page.text
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in page.text
            assert not {"422", "500"} & set(operation["responses"])


def test_nobody_waits_for_the_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the start, and not the loop: a thread makes it for whoever asks first, once."""
    makers, describe = list[str](), fastapi.applications.get_openapi

    def watched(**own: Any) -> Any:
        makers.append(threading.current_thread().name)
        return describe(**own)

    monkeypatch.setattr(fastapi.applications, "get_openapi", watched)
    api = client(parts())
    assert makers == []
    assert [api.get(path).status_code for path in ("/docs", "/openapi.json", "/docs")] == [200] * 3
    assert len(makers) == 1 and "worker" in makers[0]


@pytest.mark.parametrize("origin", ["http://ours", "http://other"])
def test_a_listed_page_is_shown_why_it_was_refused(origin: str) -> None:
    """Its browser tells any other page only that nothing came."""
    grant = Grant(name="team", role=Role.TENANT, digest=digest_of("s"), tenants=frozenset({"acme"}))
    api = client(parts(grant, allowed_origins=["http://ours"]))
    shown = origin if origin == "http://ours" else None
    for token, path, status in (("no", "", 401), ("s", "/rg1", 403)):
        headers = {"origin": origin, "authorization": f"Bearer {token}"}
        told = api.get(f"/admin/v2/resourcegroups{path}", headers=headers)
        assert (told.status_code, told.headers.get("access-control-allow-origin")) == (status, shown)


def test_no_request_waits_for_a_thread(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are forty, and what takes long has them: to read a path takes none."""
    monkeypatch.setattr("fastapi.dependencies.utils.run_in_threadpool", None)
    namespace, topic = "/admin/v2/namespaces/acme/orders", "/admin/v2/persistent/acme/orders/t1"
    for path in (
        ORDERS, ACME, f"{namespace}/dispatchRate", f"{namespace}/backlogQuotaMap", f"{topic}/dispatchRate",
        f"{topic}/backlogQuotaMap?applied=true", f"{topic}/sub/dispatchRate",
    ):  # fmt: skip
        assert answer(api, "GET", path)[0] == 200, path
    assert answer(api, "DELETE", f"{topic}/backlogQuota")[0] == 204


def test_policies_are_made_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each who asks what applies, or for stats: of 100,000 entries that takes 5 ms and more."""
    held = PolicySet()
    api = client(replace(parts(), view=EntityView(lambda: held, 10)))
    monkeypatch.setattr(PolicySet, "__init__", None)
    asked = ("backlogQuotaMap?applied=true", "dispatchRate?applied=true", "stats")
    statuses = [answer(api, "GET", f"/admin/v2/persistent/acme/orders/t1/{path}")[0] for path in asked]
    assert statuses == [200, 200, 404]
