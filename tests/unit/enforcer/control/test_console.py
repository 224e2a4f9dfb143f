"""The console's files as they are served, and the policies behind its page."""

import re
from dataclasses import replace
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from admin_api_kit import MemoryStore, answer, client, parts
from each_kit import each
from fastapi.testclient import TestClient

from enforcer.control.access.tokens import Grant, Role, digest_of
from enforcer.control.console.pages import HEADERS, INDEX
from enforcer.control.store import PolicyStore
from streaming.kafka_io.policy_topic import PolicyLog
from streaming.kafka_io.weir_topics import Fault, TopicFault

STATIC = files("enforcer.control.console") / "static"
NAMES = sorted(file.name for file in STATIC.iterdir())
PREFIX = "/weir/v1/policies"
ALICE, GROUP = "quotas[user=alice]", "resourcegroups.rg1"
HELD: dict[str, Any] = {
    ALICE: {"controller_mutation_rate": 5},
    GROUP: {"publishRateInMsgs": 300},
    "tenants.acme": {"resourcegroup": "rg1"},
}


@pytest.fixture
def world(made_once: tuple[MemoryStore, TestClient]) -> tuple[MemoryStore, TestClient]:
    """The API with some policies, as if nobody had changed one."""
    vars(made_once[0]).update(vars(MemoryStore()), held=dict(HELD))
    return made_once


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_served_once_and_allows_nothing_else(api: TestClient, name: str) -> None:
    """Its own type, a policy of content that lets in nothing from elsewhere, 304 while it is the same."""
    path = f"/console/{name}"
    first = api.get(path)
    assert first.status_code == 200 and first.content == (STATIC / name).read_bytes()
    assert {key: first.headers[key] for key in HEADERS} == HEADERS
    assert "text/plain" not in first.headers["content-type"]
    again = api.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert answer(api, "GET", f"{path}x") == (404, {"reason": "Not Found"})


@each("name", NAMES)
def test_a_file_is_readable_and_needs_nothing_from_elsewhere(name: str) -> None:
    """As short as any of the house; no address, nothing inline, and no markup made from text."""
    text = (STATIC / name).read_text()
    lines = text.splitlines()
    assert len(lines) <= 400 and max(map(len, lines)) <= 110
    elsewhere = text.replace("http://www.w3.org/2000/svg", "").replace("persistent://", "")
    assert "://" not in elsewhere and "@import" not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
    assert name != INDEX or not re.search(r" style=| on[a-z]+=|<style|<script>", text)


@each("name", [name for name in NAMES if name.endswith(".js")])
def test_a_module_imports_what_it_calls(name: str) -> None:
    """What another one exports: without that a page ends at the call, and only where its data lead there."""
    whole = "\n".join((STATIC / each).read_text() for each in NAMES)
    exported = set(re.findall(r"^export (?:async )?(?:function|const) (\w+)", whole, re.MULTILINE))
    text = (STATIC / name).read_text()
    imported = " ".join(re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE))
    known = {*re.findall(r"\w+", imported), *re.findall(r"\b(?:function|const|let) (\w+)", text)}
    assert exported & set(re.findall(r"(?<![\w.])(\w+)\(", text)) <= known


def test_pages_are_open_and_what_they_show_is_not() -> None:
    """Without a token the page comes, so that it can ask for one; a page is told so that no dialog comes."""
    api = client(parts(Grant(name="ops", role=Role.OPERATOR, digest=digest_of("ops"))), "192.0.2.7")
    assert api.get("/").content == (STATIC / INDEX).read_bytes()
    for method, path in (("GET", PREFIX), ("GET", "/docs"), ("PUT", "/"), ("POST", "/console/app.js")):
        assert api.request(method, path).status_code == 401
    challenges = [
        api.get(PREFIX, headers=headers).headers["www-authenticate"]
        for headers in ({}, {"X-Requested-By": "console"})
    ]
    assert challenges == ['Bearer, Basic realm="weir"', "Bearer"]
    assert client(parts(), "192.0.2.7").get("/").status_code == 403


def test_entries_come_in_pages(world: tuple[MemoryStore, TestClient]) -> None:
    """Sorted, by a part of their name, one alone, with how many there are."""
    _, api = world

    def shown(query: str) -> tuple[list[str], str]:
        response = api.get(f"{PREFIX}{query}")
        return [row["entry"] for row in response.json()["entries"]], response.headers["x-total-count"]

    assert shown("") == (sorted(HELD), "3")
    assert shown("?offset=1&limit=1") == ([GROUP], "3")
    assert shown("?like=acme") == (["tenants.acme"], "1")
    assert shown(f"?entry={ALICE}") == ([ALICE], "1")
    assert shown("?entry=broker") == ([], "0")
    assert api.get(PREFIX).json()["may_change"] is True
    for query in ("?offset=-1", "?limit=x", "?limit=²", "?offset=9999999999"):
        assert api.get(f"{PREFIX}{query}").status_code == 400


@pytest.mark.parametrize(
    ("entry", "value", "status", "word"),
    [
        (ALICE, {"controller_mutation_rate": 6}, 204, ""), (ALICE, None, 204, ""),
        ("tenants.new", {"resourcegroup": "rg1"}, 204, ""),
        (ALICE, {"controller_mutation_rte": 6}, 400, "controller_mutation_rate"),
        (ALICE, {"controller_mutation_rate": 0}, 400, "0"), ("nothing", {}, 400, "not known"),
        (ALICE, 5, 400, "no object"), ("quotas[user=bob]", None, 404, "no entry"),
        (GROUP, None, 412, "in use by tenant acme"),
        ("tenants.new", {"resourcegroup": "none"}, 412, "does not exist"),
    ],
)
def test_a_change_is_checked_as_a_file_is(
    world: tuple[MemoryStore, TestClient], entry: str, value: Any, status: int, word: str
) -> None:
    """What is wrong is told, before it is tried too; then nothing has changed."""
    store, api = world
    body = {"entry": entry, "value": value}
    checked = answer(api, "POST", f"{PREFIX}/check", body)
    told, said = answer(api, "PUT", PREFIX, body)
    assert told == status
    if status == 204:
        assert checked == (200, {"problems": []})
        assert store.held.get(entry) == value
    else:
        assert word in str(checked[1]) and word in said["reason"]
        assert store.held == HELD


def test_a_change_needs_its_two_fields(world: tuple[MemoryStore, TestClient]) -> None:
    """No others, so that a misspelt one does not remove anything."""
    _, api = world
    for body in ({"entry": ALICE}, {"entry": ALICE, "value": None, "more": 1}, {"entry": 1, "value": None}):
        assert answer(api, "PUT", PREFIX, body)[0] == 400


def test_who_changed_what_comes_newest_first() -> None:
    """As `weir policy log` has it."""
    log = PolicyLog()
    for at in (100, 200):
        change = {"type": "policy", "path": ALICE, "value": {"controller_mutation_rate": at}, "actor": "ops"}
        log.take(orjson.dumps(change), at)
    store = SimpleNamespace(log=log)
    told = client(replace(parts(), store=cast(PolicyStore, store))).get(f"{PREFIX}/log").json()
    assert [(row["at"], row["actor"], row["new"]) for row in told] == [
        (at, "ops", {"controller_mutation_rate": at}) for at in (200, 100)
    ]


def test_faults_of_topics_are_told_with_what_mends_them() -> None:
    """As the watch has seen them last."""
    assert client(parts()).get("/weir/v1/topics").json() == []
    fault = TopicFault(topic="weir.usage", fault=Fault.CLEANUP, what="is compacted", mend="mend it")
    told = client(replace(parts(), topic_faults=lambda: (fault,))).get("/weir/v1/topics").json()
    assert told == [
        {"topic": "weir.usage", "fault": str(Fault.CLEANUP), "what": "is compacted", "mend": "mend it"}
    ]
