"""Every endpoint of the admin API with every role, and what a tenant's token shows."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from admin_api_kit import MemoryStore, client, parts
from fastapi.testclient import TestClient

from enforcer.control.access.tokens import Grant, Role, Tokens, digest_of

GROUPS: Final = "/admin/v2/resourcegroups"
SINGULAR: Final = "/admin/v2/resourcegroup"
VIEW: Final = "GET /weir/v1"
LISTS: Final = {
    f"GET {GROUPS}", f"GET {SINGULAR}", *(f"{VIEW}/{path}" for path in ("entities", "summary", "stream")),
}  # fmt: skip
GROUPS_SEEN: Final = {
    f"GET {prefix}/{{rg}}{rest}" for prefix in (GROUPS, SINGULAR) for rest in ("", "/usage")
}
NOT_OF_TENANTS: Final = {
    *(f"{method} {prefix}/{{rg}}" for prefix in (GROUPS, SINGULAR) for method in ("PUT", "DELETE")),
    "GET /admin/v2/brokers/configuration",
    "GET /admin/v2/brokers/configuration/values",
    "POST /admin/v2/brokers/configuration/{name}/{value}",
    "DELETE /admin/v2/brokers/configuration/{name}",
    *(f"{what} /weir/v1/policies" for what in ("GET", "PUT")),
    "GET /weir/v1/policies/log",
    "GET /weir/v1/topics",
    "POST /weir/v1/policies/check",
    # Of its own ones see test_routes of the answers.
    f"{VIEW}/entities/{{law}}/{{entity}}",
}
GRANTS: Final = [
    Grant(name="look", role=Role.VIEWER, digest=digest_of("look")),
    Grant(name="acme-team", role=Role.TENANT, digest=digest_of("acme"), tenants=frozenset({"acme", "sub"})),
    Grant(name="ops", role=Role.OPERATOR, digest=digest_of("ops")),
]
NAMES: Final = {
    "namespace": "orders", "topic": "t1", "subscription": "s1", "value": "5",
    "name": "dispatchThrottlingRateInMsg", "law": "mutation", "entity": "user%3Dalice",
}  # fmt: skip
HELD: Final[dict[str, Any]] = {
    "resourcegroups.mine": {"publishRateInMsgs": 1}, "resourcegroups.theirs": {"publishRateInMsgs": 2},
    "resourcegroups.shared": {"publishRateInMsgs": 3}, "resourcegroups.free": {"publishRateInMsgs": 4},
    "tenants.acme": {"resourcegroup": "mine"}, "tenants.acme2": {"resourcegroup": "theirs"},
    "namespaces.sub/a": {"resourcegroup": "shared"}, "namespaces.acme2/a": {"resourcegroup": "shared"},
}


@cache
def made() -> tuple[MemoryStore, TestClient]:
    """The API, made once."""
    one = parts(*GRANTS)
    one.streams.stopping.set()  # or they would not end
    return one.store, client(one, "192.0.2.7")


def world() -> tuple[MemoryStore, TestClient]:
    """The API with three tokens, some groups, and who is attached to them."""
    store, api = made()
    store.held, store.authors = dict(HELD), []
    return store, api


def status(token: str, operation: str, tenant: str = "acme", group: str = "mine") -> int:
    """What is answered to one request; each is the first one."""
    method, _, template = operation.partition(" ")
    names = {**NAMES, "tenant": tenant, "rg": group}
    path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], template)
    _, api = world()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return api.request(method, path, headers=headers, json={}).status_code


def test_every_endpoint_with_every_role() -> None:
    """Those that the API describes."""
    described = world()[1].get("/openapi.json", headers={"Authorization": "Bearer look"}).json()["paths"]
    assert len(described) > 30
    for path, operations in described.items():
        for method in operations:
            check_roles(f"{method.upper()} {path}")


def check_roles(operation: str) -> None:
    """401 without a token that is known, 403 beyond the role; all else is the endpoint's own answer."""
    reads = operation.startswith("GET ")
    assert (status("", operation), status("wrong", operation)) == (401, 401)
    assert status("ops", operation) not in (401, 403)
    assert (status("look", operation) == 403) is not reads
    if "{tenant}" in operation:
        assert status("acme", operation) not in (401, 403)
        assert status("acme", operation, "sub", "mine") not in (401, 403)
        for other in ("acme2", "ACME", "acm"):
            assert status("acme", operation, other) == 403
    elif operation in GROUPS_SEEN:
        assert status("acme", operation) == status("acme", operation, group="shared") == 200
        assert {status("acme", operation, group=group) for group in ("theirs", "free", "none")} == {403}
    elif operation in LISTS:
        assert status("acme", operation) == 200
    else:
        assert operation in NOT_OF_TENANTS
        assert status("acme", operation) == 403


def test_pages_tell_everybody_the_same() -> None:
    """With a token; what is not there is 404 for all of them."""
    for path, expected in (("/docs", 200), ("/openapi.json", 200), ("/nothing", 404)):
        assert {status(token, f"GET {path}") for token in ("look", "acme", "ops")} == {expected}
        assert status("", f"GET {path}") == 401
        assert list(world()[1].get(path).json()) == ["reason"]


@pytest.mark.parametrize("path", [GROUPS, SINGULAR, f"{SINGULAR}/"])
def test_a_list_shows_a_tenant_its_own(path: str) -> None:
    """The groups that it, or a namespace of it, is attached to; all of them to others."""
    _, api = world()
    shown = {
        token: api.get(path, headers={"Authorization": f"Bearer {token}"}).json()
        for token in ("look", "acme", "ops")
    }
    everything = ["free", "mine", "shared", "theirs"]
    assert shown == {"look": everything, "acme": ["mine", "shared"], "ops": everything}


def test_a_tenant_joins_no_group_of_another() -> None:
    """It would take from what the others have there, or may get there; its own it may join, and leave."""
    store, api = world()
    headers = {"Authorization": "Bearer acme"}
    for group, expected in (("theirs", 403), ("shared", 403), ("free", 403), ("none", 403), ("mine", 204)):
        for place in ("tenants/acme", "namespaces/acme/orders"):
            answer = api.put(f"/admin/v2/{place}/resourcegroup/{group}", headers=headers)
            assert (answer.status_code, group) == (expected, group)
    assert store.held["namespaces.acme/orders"] == {"resourcegroup": "mine"}
    for namespace, expected in (("a", 204), ("b", 403)):
        answer = api.put(f"/admin/v2/namespaces/sub/{namespace}/resourcegroup/shared", headers=headers)
        assert answer.status_code == expected
    assert api.delete("/admin/v2/tenants/acme/resourcegroup", headers=headers).status_code == 204
    assert "tenants.acme" not in store.held


def test_a_change_says_who_and_why() -> None:
    """By the token's name, and `X-Weir-Reason` in UTF-8 or Latin-1; a reason has its limit."""
    store, api = world()

    def change(token: str, *reasons: bytes) -> int:
        headers = [(b"authorization", f"Bearer {token}".encode())]
        headers += [(b"x-weir-reason", reason) for reason in reasons]
        path = "/admin/v2/namespaces/acme/orders/dispatchRate"
        return api.post(path, headers=headers, json={"dispatchThrottlingRateInMsg": 5}).status_code

    assert change("ops", " größer, Ticket 7 ".encode()) == 204
    assert change("acme", "größer".encode("latin-1")) == 204
    assert change("acme") == 204
    assert change("acme", b"x" * 1024) == 204
    assert change("acme", b"x" * 1025) == 400
    assert change("look", b"please") == 403
    assert change("ops", b"one", b"other") == 400
    assert store.authors == [
        ("ops", "größer, Ticket 7"), ("acme-team", "größer"), ("acme-team", ""), ("acme-team", "x" * 1024),
    ]  # fmt: skip


@pytest.mark.parametrize("left", ["", "- {token: ops, role: viewer}"])
def test_a_token_that_goes_while_its_change_waits_changes_nothing(tmp_path: Path, left: str) -> None:
    """Nor does one that has another role by then."""
    file = tmp_path / "tokens.yaml"

    def write(tokens: str) -> None:
        new = tmp_path / "new.yaml"
        new.write_text(f"tokens:\n- {{token: other, role: operator}}\n{tokens}")
        new.chmod(0o600)
        new.rename(file)

    write("- {token: ops, role: operator}")
    own = replace(parts(), tokens=Tokens((), str(file)))
    store, api = own.store, client(own)

    def change() -> int:
        headers = {"Authorization": "Bearer ops"}
        return api.put(f"{GROUPS}/g", headers=headers, json={"publishRateInMsgs": 1}).status_code

    store.meanwhile = lambda: write(left)  # type: ignore[method-assign]
    assert change() == 401 and store.held == {}
    write("- {token: ops, role: operator}")
    store.meanwhile = lambda: None  # type: ignore[method-assign]
    assert change() == 204


def test_a_tenant_makes_so_many_changes_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then 429 until the next one begins; others are let through, and operators there too."""
    now = [1_000.0]
    monkeypatch.setattr("enforcer.control.parts.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("enforcer.control.parts.CHANGES_A_MINUTE", 2)
    api = client(parts(*GRANTS), "192.0.2.7")

    def change(token: str, tenant: str) -> tuple[int, str | None]:
        path, headers = f"/admin/v2/namespaces/{tenant}/a/dispatchRate", {"Authorization": f"Bearer {token}"}
        answer = api.post(path, headers=headers, json={"dispatchThrottlingRateInMsg": 5})
        return answer.status_code, answer.headers.get("retry-after")

    assert [change("acme", "acme") for _ in range(3)] == [(204, None), (204, None), (429, "60")]
    assert [change("acme", "sub"), change("ops", "acme")] == [(204, None), (204, None)]
    now[0] += 59.5
    assert change("acme", "acme") == (429, "1")
    now[0] += 1
    assert change("acme", "acme") == (204, None)


def test_without_tokens_this_machine_is_named() -> None:
    """As the log names it."""
    here = parts()
    assert client(here).put(f"{GROUPS}/rg1", json={}).status_code == 204
    assert here.store.authors == [("loopback", "")]


def test_refused_attempts_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Those of tokens too when strangers have filled their part of the log; no token stands in it."""
    fresh = parts(*GRANTS)
    api = client(fresh, "192.0.2.7")
    for _ in range(40):
        api.put(f"{GROUPS}/mine", headers={"Authorization": "Bearer guessed"}, json={})
    caplog.clear()
    for token in ("look", "acme"):
        api.put(f"{GROUPS}/mine", headers={"Authorization": f"Bearer {token}"}, json={})
    viewer, tenant = (record.getMessage() for record in caplog.records if record.name == "weir.admin")
    assert viewer == (
        f"PUT {GROUPS}/mine from 192.0.2.7:50000 refused: 403 Don't have admin permissions: "
        "the role of look is viewer"
    )
    assert tenant.endswith("admin permissions: acme-team is for what belongs to acme, sub")
    counted = fresh.metrics.registry.get_sample_value
    names = {"method": "PUT", "route": f"{GROUPS}/{{rg}}", "code": "403"}
    assert counted("weir_admin_requests_total", names) == 1
    assert counted("weir_admin_requests_total", names | {"route": "unknown"}) == 1
    assert counted("weir_admin_requests_total", names | {"route": "unknown", "code": "401"}) == 40
