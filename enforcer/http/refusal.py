"""What a request is told that is not passed on; over its quota 429, as HTTP and its drafts have it (RFC 6585,
RFC 9457, draft-ietf-httpapi-ratelimit-headers-11)."""

from math import ceil
from typing import TYPE_CHECKING, Final

import orjson

from streaming.contract.errors import WeirError

if TYPE_CHECKING:
    from enforcer.laws.mutation.mutations import Answer

POLICY: Final = "partition-mutations"
_TYPE: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_INTEGER_MAX: Final = 999_999_999_999_999
"""Largest integer of a structured field."""


class HttpRefusal(WeirError):
    """A request that cannot be carried out, or an answer that cannot be given: what the client is told."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def refuse(answer: "Answer") -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body for a request that was not allowed."""
    retry_s = ceil(_bounded(answer.retry_ms / 1000))
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"retry-after", str(retry_s).encode()),
        (b"cache-control", b"no-store"),
    ]
    if answer.quota is not None:
        burst = int(_bounded(answer.quota.burst))
        window_s = max(1, ceil(_bounded(answer.quota.burst / answer.quota.rate)))
        headers += [
            (b"ratelimit-policy", f'"{POLICY}";q={burst};w={window_s}'.encode()),
            (b"ratelimit", f'"{POLICY}";r=0;t={retry_s}'.encode()),
        ]
    problem = {
        "type": _TYPE,
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": answer.message,
        "reason": answer.message,
        "violated-policies": [POLICY],
    }
    return 429, headers, orjson.dumps(problem)


def _bounded(number: float) -> float:
    return min(number, _INTEGER_MAX)
