"""The proxy of an admin API: what is charged, refused and given back."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from http_kit import TOPIC, Front, reply

from enforcer.control.groups import Refusal
from enforcer.http.refusal import refuse
from enforcer.laws.mutation.mutations import Answer
from streaming.policy.policy_set import Candidate, mutation_quota_at

LIST = "/admin/v2/namespaces/acme/orders/topics"


async def test_the_first_is_created_the_next_refused_and_later_it_works(front: Front) -> None:
    """Over 2 a second, burst 22: the answer says when, in whole seconds, and the topic is not there."""
    assert (await front.ask("PUT", f"{TOPIC}/partitions", 30)).status == 204
    refused = await front.ask("PUT", "/admin/v2/persistent/acme/orders/t2/partitions", 30)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "4"
    assert refused.headers["ratelimit-policy"] == '"partition-mutations";q=22;w=11'
    assert refused.headers["ratelimit"] == '"partition-mutations";r=0;t=4'
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["cache-control"] == "no-store"
    problem = refused.json
    assert problem["status"] == 429 and problem["violated-policies"] == ["partition-mutations"]
    assert problem["reason"] == problem["detail"] and "2 per second, burst 22" in problem["reason"]
    assert front.pulsar.asked("PUT") == [f"{TOPIC}/partitions"]
    front.desk.pass_ms(4_000)
    assert (await front.ask("PUT", "/admin/v2/persistent/acme/orders/t2/partitions", 30)).status == 204
    assert front.count("weir_http_requests_total", operation="createPartitionedTopic", code="429") == 1
    assert [event["api"] for event in front.desk.of_type("request")] == ["createPartitionedTopic"] * 3


def test_a_refusal_tells_of_any_quota() -> None:
    """Of the least rate and the largest burst the most that a header may say: their quotient is infinite."""
    longest = {"controller_mutation_rate": 1e-9, "controller_mutation_burst": 1e300}
    quota = mutation_quota_at(Candidate(level=0, path="", subject=""), longest)
    _, headers, _ = refuse(cast(Answer, SimpleNamespace(retry_ms=1, quota=quota, message="")))
    told = b'"partition-mutations";q=999999999999999;w=999999999999999'
    assert (b"ratelimit-policy", told) in headers


async def test_a_retry_after_is_rounded_up(front: Front) -> None:
    """One ms more than three seconds is four."""
    await front.ask("PUT", f"{TOPIC}/partitions", 30)
    front.desk.pass_ms(999)
    refused = await front.ask("PUT", "/admin/v2/persistent/acme/orders/t2")
    assert refused.headers["retry-after"] == "4"


@pytest.mark.parametrize(
    ("method", "path", "body", "held", "cost", "operation"),
    [
        ("PUT", "", None, None, 1, "createNonPartitionedTopic"),
        ("PUT", "/partitions", 7, None, 7, "createPartitionedTopic"),
        ("POST", "/partitions", 12, 4, 8, "updatePartitionedTopic"),
        ("DELETE", "", None, 0, 1, "deleteTopic"),
        ("DELETE", "/partitions", None, 9, 9, "deletePartitionedTopic"),
        ("POST", "/createMissedPartitions", None, 6, 6, "createMissedPartitions"),
    ],
)
@pytest.mark.parametrize(
    "topic",
    [
        TOPIC, "/admin/v2/non-persistent/acme/orders/t1", "/admin/persistent/acme/east/orders/t1",
        "/admin/non-persistent/acme/east/orders/t1",
    ],
)
async def test_what_each_costs(
    front: Front, topic: str, method: str, path: str, body: Any, held: int | None, cost: int, operation: str
) -> None:
    """What is made, what is added, what was there; in both versions and domains."""
    if held is not None:
        front.pulsar.partitions[topic] = held
    if path == "/createMissedPartitions":
        front.pulsar.answers[f"POST {topic}{path}"] = lambda _seen: reply(204)
    assert (await front.ask(method, topic + path, body)).status == 204
    (event,) = front.desk.of_type("request")
    name = topic.removeprefix("/admin/").removeprefix("v2/").replace("/", "://", 1)
    assert event["items"] == [{"name": name, "mutations": cost}]
    assert (event["api"], event["user"], event["client_id"]) == (operation, "ANONYMOUS", "")
    assert front.desk.of_type("refund") == []


async def test_a_namespace_costs_the_topics_in_it(front: Front) -> None:
    """Those that its list has, nothing if there are none; one that cannot be counted is not deleted."""
    front.pulsar.answers["DELETE /admin/v2/namespaces/acme/orders"] = lambda _seen: reply(204)
    for names in ([], ["a", "b", "c"]):
        assert front.desk.events == []
        front.pulsar.answers[f"GET {LIST}"] = lambda _seen, names=names: reply(200, names)  # type: ignore[misc]
        assert (await front.ask("DELETE", "/admin/v2/namespaces/acme/orders?force=true")).status == 204
    (event,) = front.desk.of_type("request")
    assert event["items"] == [{"name": "acme/orders", "mutations": 3}]
    # Those that are not stored go, too.
    assert front.pulsar.asked("GET") == [f"{LIST}?mode=ALL"] * 2
    for answer in (reply(500), reply(200, b"no JSON"), reply(200, {"x": 1})):
        front.pulsar.answers[f"GET {LIST}"] = lambda _seen, answer=answer: answer  # type: ignore[misc]
        assert (await front.ask("DELETE", "/admin/v2/namespaces/acme/orders")).status == 502
    assert len(front.pulsar.asked("DELETE")) == 2


# A broker goes on with what took its load balancer too long: 502 and 504 stay charged.
@pytest.mark.parametrize(
    ("status", "refunded"),
    [*((status, [5]) for status in (400, 401, 404, 409, 412, 500)), (502, []), (504, [])],
)
async def test_what_the_upstream_refuses_costs_nothing(
    front: Front, status: int, refunded: list[int]
) -> None:
    """Its answer passes as it is, and what was charged is given back, unless a gateway got no answer."""
    path = f"{TOPIC}/partitions"
    front.pulsar.answers[f"PUT {path}"] = lambda _seen: reply(status, {"reason": "so"}, x_other="1")
    answer = await front.ask("PUT", path, 5)
    assert (answer.status, answer.json, answer.headers["x-other"]) == (status, {"reason": "so"}, "1")
    assert [refund["items"][0]["mutations"] for refund in front.desk.of_type("refund")] == refunded


async def test_what_is_there_is_asked_of_the_very_same_name() -> None:
    """Servers decode a plus and bytes that are no UTF-8 in ways of their own."""
    front = Front(burst=100)
    for name in ("a+b", "a%2Bb", "a%2Fb", "a%FFb", "%61"):
        path = f"/admin/v2/persistent/acme/orders/{name}/partitions"
        front.pulsar.partitions[path.removesuffix("/partitions")] = 7
        assert (await front.ask("DELETE", path)).status == 204
        assert front.pulsar.asked("GET")[-1] == path
    assert [event["items"][0]["mutations"] for event in front.desk.of_type("request")][:3] == [7] * 3


async def test_what_is_bound_to_fail_is_not_decided(front: Front) -> None:
    """A growth or deletion of what is not there, or to what is there: the upstream says what is wrong."""
    assert (await front.ask("POST", f"{TOPIC}/partitions", 5)).status == 404
    assert (await front.ask("DELETE", f"{TOPIC}/partitions")).status == 404
    front.pulsar.partitions[TOPIC] = 5
    assert (await front.ask("POST", f"{TOPIC}/partitions", 5)).status == 204
    assert front.desk.events == []


@pytest.mark.parametrize("status", [408, 429, 503])
async def test_what_a_busy_upstream_does_not_count_is_not_carried_out(front: Front, status: int) -> None:
    """It may do a moment later what it refused to count: a thousand partitions would go for one."""
    front.pulsar.partitions[TOPIC] = 1_000
    front.pulsar.answers[f"GET {TOPIC}/partitions"] = lambda _seen: reply(status)
    assert (await front.ask("DELETE", f"{TOPIC}/partitions")).status == 502
    assert front.pulsar.partitions == {TOPIC: 1_000} and not front.pulsar.asked("DELETE")


@pytest.mark.parametrize(("method", "cost"), [("POST", 5), ("DELETE", 1)])
async def test_what_succeeds_all_the_same_is_charged(front: Front, method: str, cost: int) -> None:
    """Somebody made the topic in between."""
    front.pulsar.answers[f"{method} {TOPIC}/partitions"] = lambda _seen: reply(204)
    assert (await front.ask(method, f"{TOPIC}/partitions", 5)).status == 204
    (event,) = front.desk.of_type("request")
    assert event["items"][0]["mutations"] == cost and event["strict"] is False


@pytest.mark.parametrize(
    ("error", "status", "refunded"),
    [
        (httpx2.ConnectError("no"), 502, True), (httpx2.ConnectTimeout("no"), 502, True),
        (httpx2.PoolTimeout("no"), 503, True), (httpx2.ReadTimeout("no"), 504, False),
        (httpx2.ReadError("no"), 502, False), (httpx2.RemoteProtocolError("no"), 502, False),
    ],
)
async def test_an_upstream_that_does_not_answer(error: Exception, status: int, refunded: bool) -> None:
    """What it may have done stays charged; what it never got is given back."""
    front = Front()
    front.pulsar.fails = [error, error]
    answer = await front.ask("PUT", f"{TOPIC}/partitions", 5)
    assert answer.status == status and answer.json["reason"]
    assert len(front.desk.of_type("refund")) == refunded
    assert len(front.pulsar.seen) == 1


async def test_a_question_is_asked_twice_if_an_idle_connection_had_ended(front: Front) -> None:
    """Only of what changes nothing."""
    front.pulsar.answers["GET /admin/v2/clusters"] = lambda _seen: reply(200, ["c"])
    front.pulsar.fails = [httpx2.RemoteProtocolError("gone")]
    assert (await front.ask("GET", "/admin/v2/clusters")).json == ["c"]
    front.pulsar.fails = [httpx2.RemoteProtocolError("gone"), httpx2.ReadError("gone")]
    assert (await front.ask("GET", "/admin/v2/clusters")).status == 502
    assert front.count("weir_http_upstream_failures_total", reason="ended") == 1


@pytest.mark.parametrize(
    "path",
    [
        "/admin/v2/persistent/acme/orders/t1/partitions/",
        "/admin/v2/persistent/acme/orders/t1;a=b/partitions",
        "/admin/v2/persistent/acme;x/orders;y=z/t1/partitions;w",
        "/admin;/v2/persistent/acme/orders/t1/partitions",
        "/admin/v2/persistent/acme/orders/t1/partitions#part",
        "http://elsewhere/admin/v2/persistent/acme/orders/t1/partitions",
        "//admin///v2/persistent/acme/orders/t1/partitions",
        "/%61dmin/v2/persistent/acme/orders/t1/%70artitions",
        "/admin/v2/persistent/acme/orders/t1/partitions?authoritative=true",
    ],
)
async def test_no_way_of_writing_a_path_escapes(front: Front, path: str) -> None:
    """Whatever a server may read as the path of a rule is charged, and goes out as it was matched."""
    await front.ask("PUT", path, 3)
    (event,) = front.desk.of_type("request")
    assert event["items"] == [{"name": "persistent://acme/orders/t1", "mutations": 3}]
    (target,) = front.pulsar.asked("PUT")
    assert ";" not in target and "#" not in target and "elsewhere" not in target
    assert target.endswith("?authoritative=true") == path.endswith("?authoritative=true")


@pytest.mark.parametrize("path", ["/a/../b", "/a/./b", "/a/%2e%2e/b", "/a/.;x/b", "/.."])
async def test_parts_of_dots_are_refused(front: Front, path: str) -> None:
    """Servers do not agree on what they mean."""
    answer = await front.ask("GET", path)
    assert answer.status == 400 and front.pulsar.seen == []


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (b"3", 3), (b'"3"', 3), (b"3.7", 3), (b"3e0", 3), (b"+3", 3), (b" 3 ", 3), (b"03", 3),
        (b'"\\u0033"', 3), ("\u0663".encode(), 3), (b'{"partitions":4}', 4), (b'{"partitions":"4"}', 4),
        (b'{"partitions":4,"partitions":5}', 5), (b'{"partitions":4.5,"x":{}}', 4),
    ],
)  # fmt: skip
async def test_numbers_are_read_as_pulsar_reads_them(front: Front, body: bytes, number: int) -> None:
    """Texts, fractions and objects too (docs/protocol_notes.md 4.7)."""
    front.pulsar.answers[f"PUT {TOPIC}/partitions"] = lambda _seen: reply(204)
    await front.ask("PUT", f"{TOPIC}/partitions", body)
    assert front.desk.of_type("request")[0]["items"][0]["mutations"] == number


@pytest.mark.parametrize(
    "body", [b"null", b"true", b"[3]", b"0", b"-1", b"{}", b'{"partitions":null}', b'"x"']
)
async def test_no_number_is_for_the_upstream_to_refuse(front: Front, body: bytes) -> None:
    """Nothing is decided."""
    front.pulsar.answers[f"PUT {TOPIC}/partitions"] = lambda _seen: reply(406)
    assert (await front.ask("PUT", f"{TOPIC}/partitions", body)).status == 406
    assert front.desk.events == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400), (b"3 4", {}, 400), ("3".encode("utf-16"), {}, 400), (b"99999999999", {}, 400),
        (b"3", {"content-encoding": "gzip"}, 415), (b" " * 70_000 + b"3", {}, 413),
    ],
)
async def test_what_cannot_be_counted_is_refused(body: bytes, headers: dict[str, str], status: int) -> None:
    """Before anything else; what we cannot read the upstream might."""
    front = Front()
    answer = await front.ask("PUT", f"{TOPIC}/partitions", body, **headers)
    assert answer.status == status and answer.json["reason"] and front.pulsar.seen == []


async def test_nothing_is_done_for_who_left_while_it_was_counted(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upstream takes its time to say how many partitions a topic has that is to be deleted."""
    answer = front.pulsar.handle_async_request

    async def slowly(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.05)
        return await answer(request)

    monkeypatch.setattr(front.pulsar, "handle_async_request", slowly)
    front.pulsar.partitions[TOPIC] = 3
    assert (await front.ask("DELETE", f"{TOPIC}/partitions", stays=False)).status == 0
    assert front.pulsar.asked("DELETE") == [] and front.desk.events == []


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one whose client leaves is dropped."""
    monkeypatch.setattr("enforcer.http.proxy.BODY_TIMEOUT_MS", 100)
    front = Front()

    async def never() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def displaced() -> dict[str, Any]:
        raise Refusal(503, "others wait")

    path = f"{TOPIC}/partitions"
    assert (await front.ask("PUT", path, receive=never)).status == 408
    assert (await front.ask("PUT", path, receive=gone)).status == 0 and front.desk.events == []
    assert front.count("weir_http_requests_total", operation="createPartitionedTopic", code="499") == 1
    with pytest.raises(Refusal):
        await front.ask("PUT", path, receive=displaced)
    assert front.count("weir_http_requests_total", operation="createPartitionedTopic", code="503") == 1
