"""Answers of the upstream that are not passed as they are: lookups of topics, which would send clients past
the proxy, and whatever else its owner fills in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from enforcer.http.refusal import HttpRefusal
from enforcer.http.rules import Pattern
from enforcer.wire.http.paths import segments_of

_LOOKUPS: Final = (
    "/lookup/v2/topic/{domain:persistent|non-persistent}/{tenant}/{namespace}/{topic}",
    # Of version 1 alone: a topic's bundle has as many parts.
    "/lookup/v2/destination/{domain:persistent|non-persistent}/{tenant}/{cluster}/{namespace}/{topic}",
)
_NOT_CONFIGURED: Final = (
    "Lookups are not answered here: http.binary_address does not say where clients are to go"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFilling:
    """A kind of answer that is filled in; only answers of 200 with JSON are.

    Attributes:
        path: of its GET request.
        fill: names in the path, the value, and where the client has found this proxy (http://HOST:PORT)
            -> the new value.
    """

    path: str
    fill: Callable[[Mapping[str, str], Any, str], Any]


class Fillings:
    """All kinds of answers that are filled in; the first that fits counts.

    Args:
        fillings: them.
    """

    def __init__(self, fillings: Sequence[AnswerFilling]) -> None:
        self._fillings = [(Pattern(filling.path), filling) for filling in fillings]

    def find(self, method: str, path: str) -> Callable[[Any, str], Any] | None:
        """What fills the answer of a request in: the value and where the proxy is -> the new value."""
        if method.upper() != "GET":
            return None
        segments = segments_of(path)
        for pattern, filling in self._fillings:
            names = pattern.match(segments)
            if names is not None:
                found, fill = names, filling.fill
                return lambda value, origin: fill(found, value, origin)
        return None


def lookups(binary_address: str, secure: bool) -> list[AnswerFilling]:
    """Answers of lookups, with our own addresses in place of the brokers'; by TLS where we speak only that.

    Args:
        binary_address: HOST:PORT of our proxy of the binary protocol; empty: lookups are refused.
        secure: it speaks TLS.
    """

    def fill(_names: Mapping[str, str], value: Any, origin: str) -> Any:
        if not binary_address:
            raise HttpRefusal(501, _NOT_CONFIGURED)
        plain, tls = ("", f"pulsar+ssl://{binary_address}") if secure else (f"pulsar://{binary_address}", "")
        web, web_tls = ("", origin) if origin.startswith("https:") else (origin, "")
        ours = {"brokerUrl": plain, "nativeUrl": plain, "httpUrl": web}
        return {**ours, "brokerUrlTls": tls, "brokerUrlSsl": tls, "httpUrlTls": web_tls} | {
            name: given
            for name, given in (value if isinstance(value, dict) else {}).items()
            if "Url" not in name
        }

    return [AnswerFilling(path=path, fill=fill) for path in _LOOKUPS]
