"""The admin API's client: redirects, tokens, tries, limits."""

import asyncio
from pathlib import Path

import httpx2
import pytest
from limits_kit import BASE, FakePulsar, rest_of, run

from streaming.collect.pulsar.rest import HOPS_MAX, Rest, RestError, RestTerms
from streaming.collect.settings import TOKEN_VARIABLE
from streaming.contract.errors import WeirError

PATH = "/admin/v2/namespaces/a/b/publishRate"


def test_a_call_is_tried_a_few_times_and_then_failed() -> None:
    """No answer and 5xx are tried again, as often as said, and what the last one said is told."""
    fake = FakePulsar()
    fake.fail = lambda _method, _path: (None, 503, 500)[min(2, len(fake.calls) - 1)]
    with pytest.raises(RestError, match="500 because 500") as caught:
        run(rest_of(fake, attempts_max=3).get(PATH))
    assert (len(fake.calls), caught.value.status) == (3, 500)


async def test_many_calls_to_nobody_end_soon() -> None:
    """Who did not answer is not asked by those that wait in line, and is again in the next round."""
    fake = FakePulsar()
    fake.fail = lambda _method, _path: None
    rest = rest_of(fake, attempts_max=2, at_once=4)
    calls = [rest.get(PATH) for _ in range(100)]
    failures = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, RestError) and one.status is None for one in failures)
    assert 5 <= len(fake.calls) <= 8
    fake.fail = lambda _method, _path: 0
    rest.ask_again()
    assert await rest.get(PATH) is None


async def test_an_attempt_is_told_by_what_came_of_it_and_only_one_that_was_made() -> None:
    """A silent broker's many topics counted as that many calls of no time, and it by the redirect to it."""
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host != "admin":
            raise httpx2.ConnectError("no route")
        return httpx2.Response(307, headers={"location": f"http://broker1:8080{request.url.path}"})

    def told(_method: str, outcome: str, _seconds: float) -> None:
        seen.append(outcome)

    rest = Rest(RestTerms(base=BASE, attempts_max=1), told, httpx2.MockTransport(answer))
    rest.trust_brokers(["broker1:8080"])
    for asked in (rest.get(PATH), rest.get(PATH), rest.text("http://broker1:8080/metrics/")):
        with pytest.raises(RestError, match="broker1:8080 d"):
            await asked
    assert seen == ["unreachable", "307"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412])
def test_a_refusal_is_no_reason_to_try_again(status: int) -> None:
    """Who is refused is refused again."""
    fake = FakePulsar()
    fake.fail = lambda _method, _path: status
    with pytest.raises(RestError) as caught:
        run(rest_of(fake, attempts_max=3).get(PATH))
    assert len(fake.calls) == 1
    assert caught.value.absent == (status == 404)
    assert caught.value.refused == (status in (401, 403))


def test_redirects_lead_to_brokers_of_the_cluster_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token follows to a broker that the cluster has named, and to nobody else."""
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-token\n")
    seen: list[tuple[str, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.host, request.headers.get("authorization")))
        if request.url.host == "admin":
            return httpx2.Response(307, headers={"location": f"http://broker1:8080{request.url.path}?x=1"})
        return httpx2.Response(200, json={"a": 1})

    stranger = rest_of(answer)
    with pytest.raises(RestError, match="http://broker1:8080, which is no broker") as caught:
        run(stranger.get(PATH))
    assert "secret" not in str(caught.value)
    known = rest_of(answer)
    known.trust_brokers(["broker1:8080"])
    assert run(known.get(PATH)) == {"a": 1}
    assert seen == [("admin", "Bearer secret-token")] * 2 + [("broker1", "Bearer secret-token")]
    # Its address may be somebody else's by now.
    known.trust_brokers(["broker2:8080"])
    with pytest.raises(RestError, match="http://broker1:8080, which is no broker"):
        run(known.get(PATH))


def test_a_broker_without_an_address_costs_the_round_and_no_more() -> None:
    """What the cluster names was taken as it is, and what the library says to it ended the collector."""
    rest = rest_of(lambda _request: httpx2.Response(200))
    with pytest.raises(RestError, match="a broker of this cluster has no address"):
        rest.trust_brokers(["broker1:8080", "broker2:port"])


def test_redirects_have_an_end() -> None:
    """A cluster that cannot make up its mind does not keep a call for ever."""
    calls = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        calls.append(request.url.path)
        return httpx2.Response(307, headers={"location": BASE + PATH})

    with pytest.raises(RestError, match="sent on more than"):
        run(rest_of(answer).get(PATH))
    assert len(calls) == HOPS_MAX


def test_a_token_that_was_renewed_is_read_after_a_401(tmp_path: Path) -> None:
    """Tokens of mounted secrets change under way."""
    file = tmp_path / "token"
    file.write_text("old")

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200 if request.headers["authorization"] == "Bearer new" else 401)

    rest = rest_of(answer, attempts_max=3, token_file=str(file))
    with pytest.raises(RestError, match="401"):
        run(rest.get(PATH))
    file.write_text(" new\n")
    assert run(rest.get(PATH)) is None


def test_an_answer_without_end_is_a_failure() -> None:
    """Bytes have a bound."""
    rest = rest_of(lambda _request: httpx2.Response(200, content=b"x" * 2000), answer_max=1000)
    with pytest.raises(RestError, match="more than 1000 bytes"):
        run(rest.text(f"{BASE}/metrics/"))


@pytest.mark.parametrize("content", [b"<html>", b"{", b"\xff"])
def test_what_is_no_json_is_a_failure(content: bytes) -> None:
    """A page of some other server, for one."""
    with pytest.raises(RestError, match="no JSON"):
        run(rest_of(lambda _request: httpx2.Response(200, content=content)).get(PATH))


@pytest.mark.parametrize(
    "base", ["", "localhost:8080", "ftp://x", "http://u:p@x:1", "http://x:1?a=b", "http://x:99999"]
)
def test_what_is_no_address_is_refused(base: str) -> None:
    """Before any call, in words."""
    with pytest.raises(WeirError, match=r"http://HOST:PORT was expected"):
        Rest(RestTerms(base=base))


def test_a_missing_token_file_is_said_without_its_content(tmp_path: Path) -> None:
    """The command ends with it."""
    with pytest.raises(WeirError, match="cannot be read"):
        Rest(RestTerms(base=BASE, token_file=str(tmp_path / "none")))


@pytest.mark.parametrize("content", [b"5", b'"broker1:8080"', b'{"reason":"login first"}'])
def test_what_is_no_list_names_nobody(content: bytes) -> None:
    """A number ended the collector with a traceback; keys of an object were called, with the token."""
    rest = rest_of(lambda _request: httpx2.Response(200, content=content))
    with pytest.raises(RestError, match="list was expected"):
        run(rest.names("/admin/v2/brokers"))
    assert run(rest_of(lambda _request: httpx2.Response(204)).names("/admin/v2/tenants")) == []
