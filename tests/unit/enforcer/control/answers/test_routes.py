"""`GET /weir/v1/...`: forms, what is refused, and what a tenant's token shows."""

from typing import Any

import pytest
from admin_api_kit import client, parts
from entity_kit import POLICIES, TOPIC, admission, backlog, decided, dispatch, reported, usage
from fastapi.testclient import TestClient

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.answers import routes
from enforcer.control.entities.laws import Entity

T = 1_795_166_700_000
NAME = "persistent%3A%2F%2Facme%2Forders%2Ft1%2Fsub1"
FIELDS = ["entity", "law", "limit", "used", "fraction", "waiting_ms", "refused", "since", "entry"]
GRANTS = [
    Grant(name="look", role=Role.VIEWER, digest=digest_of("look")),
    Grant(name="acme-team", role=Role.TENANT, digest=digest_of("acme"), tenants=frozenset({"acme"})),
    Grant(name="other-team", role=Role.TENANT, digest=digest_of("other"), tenants=frozenset({"other"})),
]


@pytest.fixture(scope="module")
def made() -> TestClient:
    """The API with an entity of each law but one, made once: whoever asks changes nothing."""
    own = parts(*GRANTS)
    own.store.held = dict(POLICIES)
    decided(
        own.view, admission(T, tokens=-60.0, throttle_time_ms=12_000, rejected=["t"]),
        dispatch(T, 25, 9_000), backlog(T, 10),
    )  # fmt: skip
    reported(own.view, usage(T, "p1", 100))
    return client(own)


@pytest.fixture
def api(made: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """It, a second later."""
    monkeypatch.setattr(routes, "now_ms", lambda: T + 1_000)
    return made


def ask(api: TestClient, path: str, token: str = "look") -> Any:
    """One request with a token."""
    return api.get(f"/weir/v1{path}", headers={"Authorization": f"Bearer {token}"} if token else {})


def test_the_list_has_the_fields_of_weir_top(api: TestClient) -> None:
    """First those of the contract, in its order; the whole number of entities beside it."""
    answered = ask(api, "/entities?by=used&limit=2")
    rows = answered.json()
    assert [list(row)[:9] for row in rows] == [FIELDS] * 2
    assert [row["entity"] for row in rows] == [f"{TOPIC}/sub1", "user=alice"]
    assert answered.headers["x-total-count"] == "4"
    (second,) = ask(api, "/entities?by=wait&offset=1&limit=1&law=").json()
    assert second["law"] == "dispatch"
    (of_law,) = ask(api, "/entities?law=backlog").json()
    assert of_law["entity"] == TOPIC


def test_the_list_is_searched_by_name(api: TestClient) -> None:
    """What is in it, with the law and the caller's rights; of a page its whole number."""
    found = ask(api, "/entities?name=orders%2Ft1&limit=1")
    assert found.headers["x-total-count"] == "2" and TOPIC in found.json()[0]["entity"]
    (only,) = ask(api, "/entities?name=t1%2Fsub&law=dispatch").json()
    assert only["entity"] == f"{TOPIC}/sub1"
    assert ask(api, "/entities?name=nobody").json() == []
    assert ask(api, "/entities?name=alice", "acme").json() == []


@pytest.mark.parametrize("query", ["by=name", "law=rates", "limit=0", "limit=1001", "offset=-1", "limit=x"])
def test_what_cannot_be_asked_is_refused(api: TestClient, query: str) -> None:
    """400, with what was expected."""
    answered = ask(api, f"/entities?{query}")
    assert answered.status_code == 400 and "expected" in answered.json()["reason"]


def test_an_entity_is_named_as_it_stands_in_the_list(api: TestClient) -> None:
    """Percent-encoded; one of which nothing was heard is 404."""
    found = ask(api, f"/entities/dispatch/{NAME}").json()
    assert found["entity"] == f"{TOPIC}/sub1" and found["ladder"] and found["help"]["limit"] == 25.0
    assert ask(api, "/entities/mutation/user%3Dalice").json()["waiting_ms"] == 11_000
    assert ask(api, "/entities/mutation/user%3Dbob").status_code == 404
    assert ask(api, "/entities/rates/user%3Dbob").status_code == 400


def test_the_summary_says_who_waits(api: TestClient) -> None:
    """How many, for how long, and of how many."""
    told = ask(api, "/summary").json()
    assert (told["waiting"], told["refused"], told["entities"], told["oldest_ms"]) == (2, 1, 4, 1_000)
    assert told["mode"] == "enforce" and told["parts"] and told["overshoot"] == []


def test_a_tenant_sees_its_own(api: TestClient) -> None:
    """Its topics and the groups that it is attached to; neither users of Kafka nor others' topics."""
    laws = [row["law"] for row in ask(api, "/entities", "acme").json()]
    assert sorted(laws) == ["backlog", "dispatch", "shares"]
    assert ask(api, "/summary", "acme").json()["waiting"] == 1
    assert ask(api, "/entities/mutation/user%3Dalice", "acme").status_code == 403
    assert ask(api, f"/entities/dispatch/{NAME}", "acme").status_code == 200
    assert ask(api, "/entities", "other").json() == []
    assert ask(api, f"/entities/dispatch/{NAME}", "other").status_code == 403


class Names(list[Entity]):
    """Names of rows, and how often one was looked at."""

    looked = 0

    def __getitem__(self, row: Any) -> Any:
        """One of them."""
        self.looked += 1
        return super().__getitem__(row)


def test_what_a_tenant_sees_is_not_looked_for_entity_by_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 100,000 it took a quarter of a second, each second of each stream, in which nobody was answered."""
    monkeypatch.setattr(routes, "now_ms", lambda: T + 1_000)
    own = parts(*GRANTS)
    decided(own.view, *(backlog(T, 10, topic=f"persistent://x/n/t{number}") for number in range(90)))
    decided(own.view, backlog(T, 10))
    names = own.view.table.names = Names(own.view.table.names)
    api = client(own)
    assert [row["entity"] for row in ask(api, "/entities", "acme").json()] == [TOPIC]
    assert ask(api, "/summary", "acme").json()["entities"] == 1
    assert names.looked < 10
