"""Pulsar's admin API as the collector calls it: few at a time, each with a limit, tried again a few times."""

import asyncio
import contextlib
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx2
import orjson

from streaming.collect.settings import TOKEN_VARIABLE
from streaming.contract.errors import WeirError
from streaming.contract.printable import printable

HOPS_MAX: Final = 5
"""Redirects that one call follows: from broker to broker until the topic's owner is found."""
REASON_MAX: Final = 200
_TOKEN_MAX: Final = 64 * 1024
_PAUSE_S: Final = 0.2
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 307, 308})

Seen = Callable[[str, str, float], None]
"""Told of each attempt: its method, the status that came of it or `unreachable`, and its seconds."""


Origin = tuple[str, str, int]
"""Scheme, host and port."""
Answer = tuple[bytes, Mapping[str, str]]
"""What stood there, and its headers."""


class RestError(WeirError):
    """A call that failed for good.

    Attributes:
        status: of the answer; None: there was none of use.
        silent: who did not answer; None: somebody did.
        unsure: whether this attempt, or one before it, may have been carried out.
    """

    def __init__(self, message: str, status: int | None, silent: Origin | None = None) -> None:
        super().__init__(message)
        self.status, self.silent = status, silent
        self.unsure = status is None or status >= 500

    @property
    def absent(self) -> bool:
        """The namespace, topic or subscription is not there."""
        return self.status == 404

    @property
    def refused(self) -> bool:
        """The token, or what it allows, is not enough."""
        return self.status in (401, 403)


class Unheard(RestError):
    """Not even tried, since a moment ago nobody answered there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestTerms:
    """How calls are made.

    Attributes:
        base: URL of the admin API.
        token_file: where the token stands; empty: the environment's, else none.
        ca_file: certificates for https; empty: the system's.
        timeout_s: limit of one attempt.
        attempts_max: attempts of one call.
        at_once: calls under way at a time.
        answer_max: limit of an answer, bytes; the metrics page of a broker with 100,000 topics fits.
    """

    base: str
    token_file: str = ""
    ca_file: str = ""
    timeout_s: float = 10.0
    attempts_max: int = 3
    at_once: int = 8
    answer_max: int = 256 * 1024 * 1024


def part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def namespace_path(namespace: str) -> str:
    """The path of `TENANT/NAMESPACE`, its parts quoted."""
    return f"/admin/v2/namespaces/{quote(namespace)}"


class Rest:
    """A client of one cluster's admin API; an asynchronous context manager.

    Every change that it is used for says how something is to be, so a second attempt does no harm. The
    token goes to the admin API and to brokers that the cluster itself has named, and to nobody else.

    Args:
        terms: how.
        seen: told of each call.
        transport: carries them; None: sockets. Tests put another one in.
    """

    def __init__(
        self,
        terms: RestTerms,
        seen: Seen = lambda _method, _outcome, _seconds: None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._terms = terms
        self._seen = seen
        self._base = _base_of(terms.base)
        self._token = read_token(terms.token_file)
        self._places = asyncio.Semaphore(terms.at_once)
        self._known = {_origin(self._base)}
        # Who did not answer any attempt: else each of many calls would wait for all of its attempts.
        self._silent: set[Origin] = set()
        self._client = httpx2.AsyncClient(
            timeout=terms.timeout_s,
            verify=_trust(terms.ca_file),
            limits=httpx2.Limits(max_connections=terms.at_once),
            # Neither proxies nor passwords of the surroundings: the cluster is named, and so is the token.
            trust_env=False,
            transport=transport,
            headers={"User-Agent": "weir-collect", "Accept": "application/json, text/plain;q=0.5"},
        )

    def trust_brokers(self, brokers: Iterable[str]) -> None:
        """Redirects to these (`HOST:PORT`) are followed, with the token, and to no others any more.

        Raises:
            RestError: one of them is no address.
        """
        try:
            origins = [_origin(httpx2.URL(self.broker_url(broker))) for broker in brokers]
        except httpx2.InvalidURL as bad:
            raise RestError(f"a broker of this cluster has no address: {printable(str(bad))}", None) from bad
        self._known = {_origin(self._base), *origins}

    def ask_again(self) -> None:
        """A round begins: who did not answer in the last one is asked again; until then it is not."""
        self._silent.clear()

    def broker_url(self, broker: str) -> str:
        """The web address of a broker, by the scheme of the admin API."""
        return f"{self._base.scheme}://{broker}"

    async def get(self, path: str, form: type = object) -> Any:
        """The JSON that stands there, of this form; None: nothing is set.

        Raises:
            RestError: no answer of use.
        """
        said = _json((await self._call("GET", self._url(path)))[0], path)
        if said is not None and not isinstance(said, form):
            raise RestError(f"GET {path}: {type(said).__name__}; {form.__name__} was expected", None)
        return said

    async def names(self, path: str) -> list[str]:
        """The names that are listed there.

        Raises:
            RestError: no answer of use.
        """
        return [str(one) for one in await self.get(path, list) or ()]

    async def text(self, url: str) -> bytes:
        """The text at a whole URL of a broker.

        Raises:
            RestError: no answer of use.
        """
        return (await self._call("GET", httpx2.URL(url)))[0]

    async def head(self, path: str) -> Mapping[str, str]:
        """The headers of what stands there, without it.

        Raises:
            RestError: no answer of use.
        """
        return (await self._call("HEAD", self._url(path)))[1]

    async def change(self, method: str, path: str, body: Any = None) -> None:
        """Set (POST, PUT) or take away (DELETE) something.

        Raises:
            RestError: it was refused, or it is not known whether it was done.
        """
        await self._call(method, self._url(path), None if body is None else orjson.dumps(body))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def _url(self, path: str) -> httpx2.URL:
        return httpx2.URL(f"{str(self._base).rstrip('/')}{path}")

    async def _call(self, method: str, url: httpx2.URL, body: bytes | None = None) -> Answer:
        unsure = False
        # The place is kept between attempts, so that who waits in line learns of a silence before its turn.
        async with self._places:
            for attempt in range(1, self._terms.attempts_max + 1):
                try:
                    return await self._attempt(method, url, body)
                except RestError as failure:
                    unsure = failure.unsure = unsure or failure.unsure
                    again = failure.status is None or failure.status in _AGAIN
                    again &= not isinstance(failure, Unheard)
                    # The token may have been renewed in its file; if not, it says no again.
                    again |= failure.status == 401 and self._renew_token()
                    if failure.silent is not None and attempt == self._terms.attempts_max:
                        self._silent.add(failure.silent)
                    if not again or attempt == self._terms.attempts_max:
                        raise
                await asyncio.sleep(random.uniform(0.5, 1.0) * _PAUSE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, method: str, url: httpx2.URL, body: bytes | None) -> Answer:
        """One attempt, from broker to broker."""
        began, outcome = time.monotonic(), ""
        where = f"{method} {url.path}"
        try:
            # Of the whole answer: one that trickles would never end.
            async with asyncio.timeout(self._terms.timeout_s):
                for _ in range(HOPS_MAX):
                    if _origin(url) in self._silent:
                        raise Unheard(f"{where}: {_whom(url)} did not answer a moment ago", None)
                    outcome = "unreachable"
                    status, answer, onward = await self._ask(method, url, body)
                    outcome = str(status)
                    if onward is None:
                        break
                    url = onward
                    if _origin(url) not in self._known:
                        told = printable(f"{url.scheme}://{_whom(url)}")
                        raise RestError(
                            f"{where}: sent on to {told}, which is no broker of this cluster", None
                        )
                else:
                    raise RestError(f"{where}: sent on more than {HOPS_MAX} times", None)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ssl.SSLError) as error:
            said = printable(str(error)) or type(error).__name__
            raise RestError(f"{where}: {_whom(url)} does not answer: {said}", None, _origin(url)) from error
        finally:
            # Where nobody was asked there was no attempt.
            if outcome:
                self._seen(method, outcome, time.monotonic() - began)
        if status >= 300:
            raise RestError(f"{where}: {status} {_reason(answer[0])}".rstrip(), status)
        return answer

    async def _ask(
        self, method: str, url: httpx2.URL, body: bytes | None
    ) -> tuple[int, Answer, httpx2.URL | None]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        async with self._client.stream(method, url, content=body, headers=headers) as answer:
            pieces, size = [], 0
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > self._terms.answer_max:
                    raise RestError(f"{method} {url.path}: more than {self._terms.answer_max} bytes", None)
                pieces.append(piece)
            onward = answer.headers.get("location") if answer.status_code in _REDIRECTS else None
            said = b"".join(pieces), answer.headers
            return answer.status_code, said, None if onward is None else url.join(onward)

    def _renew_token(self) -> bool:
        with contextlib.suppress(WeirError):
            before, self._token = self._token, read_token(self._terms.token_file)
            return before != self._token
        return False


async def answer_of(asked: Awaitable[Any]) -> Any:
    """What is answered, or the RestError that says why not."""
    try:
        return await asked
    except RestError as failure:
        return failure


async def told(
    ask: Callable[[str], Awaitable[Any]], paths: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, RestError]]:
    """What is told of some names, each at its path, and of which why not; of those that have gone neither."""
    answers = await asyncio.gather(*(answer_of(ask(path)) for path in paths.values()))
    found: dict[str, Any] = {}
    failed: dict[str, RestError] = {}
    for name, answer in zip(paths, answers, strict=True):
        if not isinstance(answer, RestError):
            found[name] = answer
        elif not answer.absent:
            failed[name] = answer
    return found, failed


def check_terms(terms: RestTerms) -> None:
    """Return if calls can be made so, as far as that can be said without one.

    Raises:
        WeirError: no address, or a file that cannot be read.
    """
    _base_of(terms.base)
    read_token(terms.token_file)
    _trust(terms.ca_file)


def _base_of(text: str) -> httpx2.URL:
    try:
        # Which is strict about brackets.
        urlsplit(text)
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    told = url.host and not url.query and not url.userinfo and (url.port or 1) < 2**16
    if url.scheme not in ("http", "https") or not told:
        raise WeirError(f"{printable(text)} is no address of an admin API; http://HOST:PORT was expected")
    return url


def _origin(url: httpx2.URL) -> Origin:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _whom(url: httpx2.URL) -> str:
    return f"{url.host}:{url.port or ''}"


def read_token(file: str) -> str:
    """A token of Pulsar's, without what an editor puts around it; without a file that of TOKEN_VARIABLE.

    Raises:
        WeirError: there is none in it.
    """
    if not file:
        return os.environ.get(TOKEN_VARIABLE, "").strip()
    try:
        with Path(file).open() as stream:
            token = stream.read(_TOKEN_MAX).strip()
        if not token.isprintable() or not token.isascii():
            raise ValueError
        return token
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "no line of text"
        raise WeirError(f"the token in {printable(file)} cannot be read: {said}") from error


def _trust(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise WeirError(f"{printable(ca_file)} holds no certificates: {error}") from error


def _json(answer: bytes, path: str) -> Any:
    if not answer:
        return None
    try:
        return orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise RestError(f"GET {path}: no JSON; an answer of an admin API was expected", None) from error


def _reason(answer: bytes) -> str:
    """What an error says: `{"reason": ...}`, plain text, or nothing if it is a page."""
    try:
        said = orjson.loads(answer)
        text = str(said.get("reason", "")) if isinstance(said, dict) else str(said)
    except orjson.JSONDecodeError:
        text = "" if answer.lstrip().startswith(b"<") else answer.decode("utf-8", "replace")
    return printable(text.strip().partition("\n")[0][:REASON_MAX])
