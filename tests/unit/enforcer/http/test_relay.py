"""The proxy of an admin API: what passes, and what is changed on the way."""

import asyncio
from typing import Any

import httpx2
import orjson
import pytest
from http_kit import TOPIC, Front, Seen, jwt, reply


async def test_headers_pass_but_those_that_must_not(front: Front) -> None:
    """Of one connection, of another host, and who somebody says that he is."""
    front.pulsar.answers["GET /admin/v2/clusters"] = lambda _seen: reply(
        200, ["c"], connection="close, x-hop", x_hop="1", x_other="2", set_cookie="a=b", date="then"
    )
    answer = await front.ask(
        "GET", "/admin/v2/clusters?x=%2F&y",
        connection="keep-alive, x-mine", x_mine="1", te="trailers", upgrade="h2c", expect="100-continue",
        x_original_principal="root", x_http_method_override="DELETE", accept="application/json",
        authorization="Bearer t", cookie="a=b", accept_encoding="gzip",
    )  # fmt: skip
    (seen,) = front.pulsar.seen
    assert seen.target == "/admin/v2/clusters?x=%2F&y"
    assert {name.lower(): value for name, value in seen.headers} == {
        b"host": b"pulsar:8080", b"accept": b"application/json", b"authorization": b"Bearer t",
        b"cookie": b"a=b", b"accept-encoding": b"gzip",
    }  # fmt: skip
    assert answer.headers == {"content-length": "5", "x-other": "2", "set-cookie": "a=b"}
    await front.ask("GET", "/admin/v2/clusters")
    assert front.pulsar.seen[1].header("cookie") is None


async def test_bodies_and_answers_pass_as_they_are(front: Front) -> None:
    """Chunked, encoded, without a body, HEAD, and an unknown method."""
    def echo(seen: Seen) -> httpx2.Response:
        return reply(200, seen.body + seen.method.encode(), content_encoding="gzip")

    for method in ("POST", "GET", "HEAD", "OPTIONS", "PATCH"):
        front.pulsar.answers[f"{method} /any"] = echo
    answer = await front.ask("POST", "/any", chunks=(b"a", b"b", b""))
    assert (answer.body, answer.headers["content-encoding"]) == (b"abPOST", "gzip")
    assert front.pulsar.seen[-1].header("content-length") == "2"
    assert (await front.ask("GET", "/any")).body == b"GET"
    assert front.pulsar.seen[-1].header("content-length") is None
    assert (await front.ask("PATCH", "/any")).body == b"PATCH"
    assert front.pulsar.seen[-1].header("content-length") == "0"
    head = await front.ask("HEAD", "/any")
    assert (head.body, head.headers["content-length"]) == (b"", "4")
    assert (await front.ask("OPTIONS", "/any")).body == b"OPTIONS"


async def test_a_length_beside_chunks_is_not_passed_on(front: Front) -> None:
    """It counts for nothing, and at another one our server would break the answer off."""
    front.pulsar.answers["GET /any"] = lambda _seen: reply(200, b"abc", transfer_encoding="chunked")
    answer = await front.ask("GET", "/any")
    assert answer.body == b"abc" and not answer.headers


@pytest.mark.parametrize("declared", [None, "9"])
async def test_a_large_body_is_streamed(declared: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what is kept; with its length if the client said it."""
    monkeypatch.setattr("enforcer.http.proxy.REPLAY_BODY_BYTES", 4)
    front = Front()
    front.pulsar.answers["POST /any"] = lambda seen: reply(200, seen.body)
    headers = {} if declared is None else {"content-length": declared}
    answer = await front.ask("POST", "/any", chunks=(b"abc", b"def", b"ghi"), **headers)
    assert answer.body == b"abcdefghi"
    seen = front.pulsar.seen[0]
    assert seen.header("content-length") == declared
    assert (seen.header("transfer-encoding") == "chunked") is (declared is None)
    assert front.count("weir_http_replay_bytes") == 0


async def test_kept_bodies_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it they are streamed, and those of mutations refused."""
    monkeypatch.setattr("enforcer.http.proxy.REPLAY_BYTES", 4)
    front = Front()
    front.pulsar.answers["POST /any"] = lambda seen: reply(200, seen.body)
    assert (await front.ask("POST", "/any", chunks=(b"abc", b"def"))).body == b"abcdef"
    assert (await front.ask("PUT", TOPIC, b'{"a":"b"}')).status == 413
    front.pulsar.partitions[TOPIC] = 5
    assert (await front.ask("DELETE", f"{TOPIC}/partitions")).status == 502
    assert front.count("weir_http_replay_bytes") == 0


async def test_a_slow_body_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed need not be whole in time."""
    monkeypatch.setattr("enforcer.http.proxy.BODY_TIMEOUT_MS", 100)
    front = Front()
    front.pulsar.answers["POST /any"] = lambda seen: reply(200, seen.body)
    parts = [b"abc", b"def"]

    async def receive() -> dict[str, Any]:
        if len(parts) == 1:
            await asyncio.sleep(0.2)
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    assert (await front.ask("POST", "/any", receive=receive)).body == b"abcdef"


async def begun(front: Front, gone: asyncio.Event, *parts: bytes) -> int:
    """The answer to a client that sends this and waits; 0: there was none."""
    coming = list(parts)

    async def receive() -> dict[str, Any]:
        if coming:
            return {"type": "http.request", "body": coming.pop(0), "more_body": True}
        await gone.wait()
        return {"type": "http.disconnect"}

    return (await front.ask("POST", "/any", receive=receive)).status


async def test_slow_bodies_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a connection to the upstream until its client has sent it, or is gone."""
    monkeypatch.setattr("enforcer.http.proxy.BODY_TIMEOUT_MS", 10)
    monkeypatch.setattr("enforcer.http.proxy.STREAMS_MAX", 2)
    front = Front()
    for method in ("GET", "POST"):
        front.pulsar.answers[f"{method} /any"] = lambda _seen: reply(204)
    gone = asyncio.Event()
    under_way = [asyncio.create_task(begun(front, gone)) for _ in range(2)]
    await asyncio.sleep(0.1)
    assert await asyncio.wait_for(begun(front, gone), 5) == 503
    assert (await front.ask("GET", "/any")).status == (await front.ask("POST", "/any", b"x")).status == 204
    gone.set()
    assert await asyncio.gather(*under_way) == [0, 0]
    monkeypatch.setattr("enforcer.http.proxy.REPLAY_BODY_BYTES", 0)
    assert (await front.ask("POST", "/any", b"x")).status == 204


async def test_what_was_passed_on_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its client takes for the rest: bodies that are counted need the room."""
    for name in ("REPLAY_BYTES", "REPLAY_BODY_BYTES"):
        monkeypatch.setattr(f"enforcer.http.proxy.{name}", 3)
    front, gone = Front(), asyncio.Event()
    under_way = asyncio.create_task(begun(front, gone, b"abc", b"d"))
    await asyncio.sleep(0.1)
    assert front.count("weir_http_replay_bytes") == 0 and not under_way.done()
    assert (await front.ask("PUT", f"{TOPIC}/partitions", b"5")).status == 204
    gone.set()
    assert await under_way == 0


async def test_an_answer_that_breaks_off_is_not_ended(front: Front) -> None:
    """The client sees that something is missing."""
    class Broken(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield b"half"
            raise httpx2.ReadError("gone")

    front.pulsar.answers["GET /any"] = lambda _seen: httpx2.Response(200, stream=Broken())
    answer = await front.ask("GET", "/any")
    assert (answer.status, answer.body, answer.ended) == (200, b"half", False)


async def test_who_has_left_need_not_be_fetched_for(front: Front) -> None:
    """A question is dropped, a mutation is carried out and settled."""
    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await asyncio.sleep(0.01)
                yield b"x"

    front.pulsar.answers["GET /any"] = lambda _seen: httpx2.Response(200, stream=Endless())
    answer = await asyncio.wait_for(front.ask("GET", "/any", stays=False), 5)
    assert not answer.ended
    await front.ask("PUT", f"{TOPIC}/partitions", 3, stays=False)
    assert front.pulsar.partitions[TOPIC] == 3 and front.desk.of_type("refund") == []


async def test_a_short_wait_is_waited() -> None:
    """With http.wait_ms."""
    front = Front(rate=100, burst=100, wait_ms=5_000)
    await front.ask("PUT", f"{TOPIC}/partitions", 101)

    # The proxy's timers are those of the loop; what they find is the clock of the test.
    asyncio.get_running_loop().call_later(0.005, front.desk.pass_ms, 10)
    assert (await front.ask("PUT", "/admin/v2/persistent/acme/orders/t2")).status == 204


async def test_who_leaves_while_it_waits_has_nothing_done() -> None:
    """It has given up, and may ask again."""
    front = Front(rate=100, burst=100, wait_ms=5_000)
    await front.ask("PUT", f"{TOPIC}/partitions", 101)
    left = front.ask("PUT", "/admin/v2/persistent/acme/orders/t2", stays=False)
    await asyncio.wait_for(left, 5)
    assert len(front.pulsar.seen) == 1 and front.mutations.waiting == 0
    assert front.count("weir_http_requests_total", operation="createNonPartitionedTopic", code="499") == 1


async def test_lookups_name_the_proxy() -> None:
    """Or clients would go past it."""
    front = Front(binary_address="proxy:16650")
    path = "/lookup/v2/topic/persistent/acme/orders/t1"
    told = {
        "brokerUrl": "pulsar://b1:6650", "brokerUrlTls": "pulsar+ssl://b1:6651", "httpUrl": "http://b1:8080",
        "httpUrlTls": "https://b1:8443", "nativeUrl": "pulsar://b1:6650", "brokerUrlSsl": "", "other": 1,
    }  # fmt: skip
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(200, told)
    answer = await front.ask("GET", path, accept_encoding="gzip")
    service = "pulsar://proxy:16650"
    assert answer.json == {
        "brokerUrl": service, "nativeUrl": service, "httpUrl": "http://proxy:18080", "brokerUrlTls": "",
        "brokerUrlSsl": "", "httpUrlTls": "", "other": 1,
    }  # fmt: skip
    assert answer.headers["content-length"] == str(len(answer.body))
    assert front.pulsar.seen[0].header("accept-encoding") is None
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(404, {"reason": "no"})
    assert (await front.ask("GET", path)).status == 404
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(200, b"{no JSON")
    assert (await front.ask("GET", path)).status == 502


async def test_lookups_name_the_proxy_by_tls() -> None:
    """Where its proxy of the binary protocol, and the admin API itself, speak nothing else."""
    front = Front(binary_address="proxy:16651", binary_tls=True)
    path = "/lookup/v2/topic/persistent/acme/orders/t1"
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(200, {"brokerUrl": "pulsar://b1:6650"})
    service, answer = "pulsar+ssl://proxy:16651", await front.ask("GET", path, scheme="https")
    assert answer.json == {
        "brokerUrl": "", "nativeUrl": "", "httpUrl": "", "brokerUrlTls": service, "brokerUrlSsl": service,
        "httpUrlTls": "https://proxy:18080",
    }  # fmt: skip


async def test_lookups_without_an_address_are_refused(front: Front) -> None:
    """With the setting that is missing."""
    path = "/lookup/v2/destination/persistent/acme/east/orders/t1"
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(200, {"brokerUrl": "pulsar://b1:6650"})
    answer = await front.ask("GET", path)
    assert answer.status == 501 and "http.binary_address" in answer.json["reason"]


async def test_the_bundle_of_a_topic_is_no_lookup(front: Front) -> None:
    """A path of as many parts as a lookup of version 1 has, and an answer that is no JSON."""
    path = "/lookup/v2/topic/persistent/acme/orders/t1/bundle"
    front.pulsar.answers[f"GET {path}"] = lambda seen: reply(200, b"0x40000000_0x80000000")
    answer = await front.ask("GET", path)
    assert (answer.status, answer.body) == (200, b"0x40000000_0x80000000")


async def test_answers_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever the proxy belongs to, with numbers of any size; names of the path are decoded."""

    def fill(names: Any, value: Any, host: str) -> Any:
        return {**value, "of": names["topic"], "size": 10**30}

    monkeypatch.setattr("enforcer.http.proxy.READ_ANSWER_BYTES", 1_024)
    front = Front(fills={"/x/{topic}/stats": fill})
    front.pulsar.answers["GET /x/a%2Fb/stats"] = lambda _seen: reply(200, {"n": 1})
    assert (await front.ask("GET", "/x/a%2Fb/stats")).body == b'{"n": 1, "of": "a/b", "size": %d}' % 10**30
    front.pulsar.answers["GET /x/a%2Fb/stats"] = lambda _seen: reply(200, orjson.dumps(["x"] * 1_000))
    assert (await front.ask("GET", "/x/a%2Fb/stats")).status == 502


async def test_a_status_that_is_none_is_no_answer(front: Front) -> None:
    """Our own server cannot say it: the client's connection ended without a word."""
    for status, told in ((599, 599), (600, 502), (999, 502)):
        front.pulsar.answers["POST /any"] = lambda _seen, status=status: reply(status, b"x")
        assert (await front.ask("POST", "/any")).status == told
    assert front.count("weir_http_upstream_failures_total", reason="ended") == 2


async def test_a_base_path_of_the_upstream_is_kept() -> None:
    """For an API below a path of its own."""
    front = Front(upstream="http://pulsar:8080/base/")
    await front.ask("GET", "/any?x")
    assert front.pulsar.asked("GET") == ["/base/any?x"]


async def test_users_have_their_own_quota(front: Front) -> None:
    """A token that the upstream accepts; both are told from a wrong one."""
    front.pulsar.known = {jwt(sub="ann"): "ann", jwt(sub="bob"): "bob"}
    for user in ("ann", "bob"):
        path = f"/admin/v2/persistent/acme/orders/{user}/partitions"
        assert (await front.ask("PUT", path, 30, authorization=jwt(sub=user))).status == 204
    assert (front.tokens("ann"), front.tokens("bob")) == (-8.0, -8.0)
