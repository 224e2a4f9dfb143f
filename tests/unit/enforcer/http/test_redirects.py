"""What the upstream sends on: followed inside, within bounds, and charged once."""

from collections.abc import Callable

import httpx2
import pytest
from http_kit import TOPIC, Front, Seen, reply


def sent_on(location: str, status: int = 307) -> Callable[[Seen], httpx2.Response]:
    """An upstream's answer that sends a request on."""
    return lambda _seen: reply(status, location=location)


async def test_it_is_followed_with_body_and_credential_and_charged_once() -> None:
    """As a broker sends it to another one; the query is that of the new address."""
    front = Front(allowed_hosts=["broker-*:8080"])
    front.pulsar.answers[f"PUT pulsar:8080{TOPIC}"] = sent_on(
        f"http://broker-2:8080{TOPIC}?authoritative=true"
    )
    answer = await front.ask("PUT", f"{TOPIC}?x=1", {"a": "b"}, authorization="Bearer t", cookie="c=d")
    assert answer.status == 204 and "location" not in answer.headers
    first, second = front.pulsar.seen
    assert (first.target, second.target) == (f"{TOPIC}?x=1", f"{TOPIC}?authoritative=true")
    assert (second.host, second.body, second.method) == ("broker-2:8080", b'{"a":"b"}', "PUT")
    assert second.header("authorization") == "Bearer t" and second.header("cookie") is None
    assert second.header("content-length") == first.header("content-length") == "9"
    assert len(front.desk.events) == 1
    assert front.count("weir_http_redirects_total", result="followed") == 1


async def test_the_final_status_settles(front: Front) -> None:
    """What the last server refuses is given back."""
    front.pulsar.answers[f"DELETE pulsar:8080{TOPIC}"] = sent_on(f"http://pulsar:8081{TOPIC}", 308)
    assert (await front.ask("DELETE", TOPIC)).status == 404
    assert len(front.desk.of_type("refund")) == 1


@pytest.mark.parametrize(
    "location",
    [
        "http://elsewhere/x", "http://pulsar.evil.example/x", "http://broker-1:80/x", "https://pulsar:8080/x",
        "//elsewhere/x", "http://pulsar@elsewhere/x", "ftp://pulsar/x", "http://[::1", "http://pulsar:x/",
    ],
)  # fmt: skip
async def test_only_known_hosts(location: str) -> None:
    """Anything else would get the client's credential: 502, and nothing stays charged."""
    front = Front(allowed_hosts=["broker-*:8080"])
    front.pulsar.answers[f"PUT {TOPIC}"] = sent_on(location)
    answer = await front.ask("PUT", TOPIC, authorization="Bearer t")
    assert answer.status == 502 and answer.json["reason"] and len(front.pulsar.seen) == 1
    assert len(front.desk.of_type("refund")) == 1
    assert front.count("weir_http_redirects_total", result="refused") == 1


async def test_a_host_by_ipv6_has_brackets() -> None:
    """As the refusal names it, and nothing else is meant by them."""
    front = Front(allowed_hosts=["[2001:db8::1]:8080"])
    for host, status in (("[2001:db8::1]", 204), ("[2001:db8::1:8080]", 502), ("2", 502)):
        front.pulsar.answers[f"PUT pulsar:8080{TOPIC}"] = sent_on(f"http://{host}:8080{TOPIC}")
        assert (await front.ask("PUT", TOPIC, authorization="Bearer t")).status == status


async def test_a_credential_that_came_by_tls_does_not_leave_without() -> None:
    """Even to a host that is allowed; by TLS it goes there."""
    front = Front(upstream="https://pulsar", allowed_hosts=["broker-*"])
    for scheme, status in (("http", 502), ("https", 204)):
        front.pulsar.answers[f"PUT pulsar{TOPIC}"] = sent_on(f"{scheme}://broker-2{TOPIC}")
        assert (await front.ask("PUT", TOPIC, authorization="Bearer t")).status == status
    assert [seen.host for seen in front.pulsar.seen] == ["pulsar", "pulsar", "broker-2"]


async def test_a_relative_address_is_of_the_same_server() -> None:
    """As HTTP has it."""
    front = Front(upstream="http://pulsar:8080/base")
    front.pulsar.answers["GET /base/old"] = sent_on("new?x=%2F")
    front.pulsar.answers["GET /base/new"] = lambda seen: reply(200, seen.target)
    assert (await front.ask("GET", "/old")).json == "/base/new?x=%2F"


@pytest.mark.parametrize(("most", "status"), [(3, 200), (2, 502), (0, 502)])
async def test_there_is_an_end(most: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is sent on so often and not more."""
    monkeypatch.setattr("enforcer.http.relay.upstream.REDIRECTS_MAX", most)
    front = Front()
    for number in range(3):
        front.pulsar.answers[f"GET /{number}"] = sent_on(f"http://pulsar:8080/{number + 1}")
    front.pulsar.answers["GET /3"] = lambda _seen: reply(200)
    assert (await front.ask("GET", "/0")).status == status
    assert len(front.pulsar.seen) == most + 1


async def test_a_body_that_was_not_kept_cannot_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger than what is kept."""
    monkeypatch.setattr("enforcer.http.proxy.REPLAY_BODY_BYTES", 2)
    front = Front()
    front.pulsar.answers["POST /any"] = sent_on("http://pulsar:8080/other")
    answer = await front.ask("POST", "/any", chunks=(b"abc", b"def"))
    assert answer.status == 502 and "too large" in answer.json["reason"]


@pytest.mark.parametrize(("status", "led"), [*((status, True) for status in range(301, 305)), (307, False)])
async def test_others_pass(front: Front, status: int, led: bool) -> None:
    """Pages that a browser is sent to, such as a login; without a location any is an answer."""
    location = {"location": "https://login.example/"} if led else {}
    front.pulsar.answers["GET /any"] = lambda _seen: reply(status, **location)
    answer = await front.ask("GET", "/any")
    assert (answer.status, answer.headers.get("location")) == (status, location.get("location"))
