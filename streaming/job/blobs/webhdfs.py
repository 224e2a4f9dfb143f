"""Files of HDFS over WebHDFS: Hadoop's own client is a JVM's, and libhdfs would be one more JVM a worker.

Sources: "WebHDFS REST API" of Hadoop's documentation, for the operations, redirects and exceptions used here.
"""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import httpx2
import orjson
import pyarrow as pa

DEFAULT_PORT: Final = 9870
"""Of a namenode's HTTP address: dfs.namenode.http-address in hdfs-default.xml."""
_REFUSED: Final = ("AccessControlException", "SecurityException", "AuthorizationException")
_CALLS: Final = 4
"""A file is made, filled and renamed by a call each, or taken away by a last one."""
_REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class WebHdfs:
    """A cluster without Kerberos: the user is named, not proven, as Hadoop's simple authentication has it.

    Attributes:
        addresses: of the namenodes, `http://HOST:PORT`; a standby one says so, then the next is asked.
        user: whose files they are.
        attempt_s: limit of writing, reading or deleting a file once, s.
    """

    addresses: tuple[str, ...]
    user: str
    attempt_s: float

    def write(self, path: str, content: bytes) -> None:
        """Write under another name, then rename over what is there: nobody ever sees half of a file."""
        hidden = f"{path}.{secrets.token_hex(8)}.part"
        where = _location(self._ask("PUT", hidden, op="CREATE", overwrite="true", noredirect="true"))
        try:
            self._send("PUT", where, content)
            self._ask("PUT", hidden, op="RENAME", destination=path, renameoptions="OVERWRITE")
        except OSError:
            # Nobody would ever look for it.
            with suppress(OSError):
                self.delete(hidden)
            raise

    def read(self, path: str) -> pa.Buffer:
        """The content of a file."""
        where = self._ask("GET", path, op="OPEN", noredirect="true")
        return pa.py_buffer(self._send("GET", _location(where), None))

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no failure."""
        self._ask("DELETE", path, op="DELETE")

    def _ask(self, method: str, path: str, **words: str) -> dict[str, Any]:
        """What a namenode answers to one operation."""
        words["user.name"] = self.user
        errors: list[str] = []
        for address in self.addresses:
            try:
                raw = self._send(method, f"{address}/webhdfs/v1{quote(path)}", None, words)
                answer = orjson.loads(raw) if raw else {}
            except orjson.JSONDecodeError:
                # Of something in between, such as a page to log in at.
                errors.append(f"{address}: no JSON; an answer of WebHDFS was expected")
                continue
            except (FileNotFoundError, PermissionError):
                raise
            except OSError as error:
                # A standby namenode, or one that is away: another may be the active one.
                errors.append(str(error))
                continue
            return answer if isinstance(answer, dict) else {}
        raise OSError("; ".join(errors))

    def _send(
        self, method: str, url: str, content: bytes | None, words: dict[str, str] | None = None
    ) -> bytes:
        headers = {"content-type": "application/octet-stream"} if content is not None else {}
        try:
            answer = _client(self.attempt_s / _CALLS).request(
                method, url, params=words, content=content, headers=headers
            )
        except httpx2.HTTPError as error:
            place = httpx2.URL(url)
            raise OSError(f"{place.host}:{place.port}: {error or type(error).__name__}") from error
        if answer.is_success:
            return bytes(answer.content)
        raise _failure(answer)


@lru_cache(maxsize=1)
def _client(call_s: float) -> httpx2.Client:
    """One for each worker, made after it was forked: its connections stay open between batches."""
    return httpx2.Client(timeout=call_s, trust_env=False)


def _location(answer: dict[str, Any]) -> str:
    if not isinstance(where := answer.get("Location"), str):
        raise OSError("no Location; an answer of WebHDFS was expected")
    return where


def _failure(answer: httpx2.Response) -> OSError:
    """What an answer that is no success means for the caller."""
    try:
        told = orjson.loads(answer.content)["RemoteException"]
        name, text = str(told["exception"]), str(told["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        name, text = "", answer.reason_phrase
    place = f"{answer.url.host}:{answer.url.port}"
    reason = f"{place}: {answer.status_code} {name} {' '.join(text.split())[:_REASON_CHARS]}"
    if answer.status_code == httpx2.codes.NOT_FOUND:
        return FileNotFoundError(reason)
    if answer.status_code == httpx2.codes.UNAUTHORIZED or name in _REFUSED:
        return PermissionError(reason)
    return OSError(reason)
