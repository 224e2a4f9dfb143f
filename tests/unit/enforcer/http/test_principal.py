"""Whose quota a request is charged to."""

import asyncio
import base64

import httpx2
import pytest
from each_kit import each
from http_kit import Front, jwt, reply

from enforcer.http.metrics import HttpMetrics
from enforcer.http.principal import Principals, claimed
from enforcer.http.relay.upstream import UpstreamFailed
from enforcer.http.settings import HttpSettings

PATH = "/admin/v2/persistent/acme/orders/t1"


@each(
    ("header", "name"),
    [
        (jwt(sub="ann"), "ann"), (jwt(sub="ann").replace("Bearer", "bearer"), "ann"),
        (jwt(other="ann"), None), (jwt(sub=["ann", "bob"]), "ann"), (jwt(sub=[]), None),
        (jwt(sub=[["ann"]]), None), (jwt(sub=5), None), (jwt(sub=""), None), (jwt(sub="x" * 2_000), None),
        ("Bearer opaque", None), ("Bearer a.!!!.c", None), ("Bearer a.bm8.c", None), ("Bearer ", None),
        ("Basic " + base64.b64encode(b"ann:x:y").decode(), "ann"),
        ("Basic " + base64.b64encode(b"ann").decode(), None),
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None), ("Basic !", None), ("Digest ann", None),
        ("", None),
    ],
)
def test_names_that_credentials_claim(header: str, name: str | None) -> None:
    """What names nobody is nobody's."""
    assert claimed(header.encode(), "sub") == name


class Asked:
    """An upstream that answers a credential by what it is."""

    def __init__(self, right: int, wrong: int) -> None:
        self.right, self.wrong = right, wrong
        self.asked: list[bytes] = []
        self.now_s = 0.0
        self.down = False

    async def __call__(self, authorization: bytes) -> int:
        """The status."""
        self.asked.append(authorization)
        if self.down:
            raise UpstreamFailed(502, "no", "connect", sent=False)
        return self.right if authorization == jwt(sub="ann").encode() else self.wrong

    def principals(self, **settings: int) -> Principals:
        """What asks it."""
        metrics = HttpMetrics()
        return Principals(HttpSettings(**settings), metrics, self, lambda: self.now_s)


@each(
    ("right", "wrong", "user"),
    [
        (200, 401, "ann"),
        (200, 403, "ann"),
        (403, 401, "ann"),
        (404, 401, "ann"),
        # It does not look at credentials, or not at this one.
        (200, 200, "ANONYMOUS"),
        (404, 404, "ANONYMOUS"),
        (401, 401, "ANONYMOUS"),
        (403, 403, "ANONYMOUS"),
        (401, 403, "ANONYMOUS"),
        (503, 401, "ANONYMOUS"),
        (200, 503, "ANONYMOUS"),
    ],
)
def test_a_credential_counts_if_it_is_told_from_a_wrong_one(right: int, wrong: int, user: str) -> None:
    """Else anybody could be anybody."""
    assert asyncio.run(Asked(right, wrong).principals().user(jwt(sub="ann").encode())) == user


async def test_the_answer_is_believed_for_a_time() -> None:
    """One question for each credential, and one for a wrong one."""
    asked = Asked(200, 401)
    principals = asked.principals()
    for _ in range(3):
        assert await principals.user(jwt(sub="ann").encode()) == "ann"
        assert await principals.user(jwt(sub="eve").encode()) == "ANONYMOUS"
    assert len(asked.asked) == 3
    asked.now_s, asked.right = 60.1, 401
    assert await principals.user(jwt(sub="ann").encode()) == "ANONYMOUS"


async def test_the_table_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was asked about longest ago is asked about again."""
    monkeypatch.setattr("enforcer.http.principal.CREDENTIALS_MAX", 2)
    asked = Asked(200, 401)
    principals = asked.principals()
    for number in range(4):
        await principals.user(jwt(sub=f"user{number}").encode())
    before = len(asked.asked)
    await principals.user(jwt(sub="user0").encode())
    assert len(asked.asked) == before + 1


@pytest.mark.parametrize("status", [429, 502, 503])
@pytest.mark.parametrize("met", ["right", "wrong", "down"])
async def test_an_upstream_in_trouble_says_nothing_for_long(met: str, status: int) -> None:
    """Whichever question met it: a restart would have all go by nobody's quota for a minute more."""
    asked = Asked(200, 401)
    setattr(asked, met, status)
    principals = asked.principals()
    assert await principals.user(jwt(sub="ann").encode()) == "ANONYMOUS"
    asked.right, asked.wrong, asked.down = 200, 401, False
    assert await principals.user(jwt(sub="ann").encode()) == "ann"
    assert await principals.user(None) == "ANONYMOUS"


async def test_who_is_not_accepted_uses_nobodys_quota_up(front: Front) -> None:
    """A forged token is charged to nobody in particular, and given back as it is refused."""
    front.pulsar.known = {jwt(sub="ann"): "ann"}
    forged = jwt(sub="ann") + "x"
    assert (await front.ask("PUT", f"{PATH}/partitions", 30, authorization=forged)).status == 401
    (event,) = front.desk.of_type("request")
    assert event["user"] == "ANONYMOUS" and len(front.desk.of_type("refund")) == 1
    assert (await front.ask("PUT", f"{PATH}/partitions", 30, authorization=jwt(sub="ann"))).status == 204


async def test_basic_credentials_are_asked_about_in_their_own_scheme(front: Front) -> None:
    """The wrong one too."""
    right = "Basic " + base64.b64encode(b"ann:secret").decode()

    def answer(seen: object) -> httpx2.Response:
        return reply(200 if front.pulsar.seen[-1].header("authorization") == right else 401)

    front.pulsar.answers["GET /admin/v2/clusters"] = answer
    await front.ask("PUT", PATH, authorization=right)
    (event,) = front.desk.of_type("request")
    assert event["user"] == "ann"
    asked = [seen.header("authorization") or "" for seen in front.pulsar.seen if seen.method == "GET"]
    assert [header.partition(" ")[0] for header in asked] == ["basic", "Basic"]
