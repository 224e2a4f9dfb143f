"""Answers of the upstream that are not passed as they are: lookups of topics, which would send clients past
the proxy, and whatever else its owner fills in.
"""

from collections.abc import Callable, Mapping
from functools import partial
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


Fill = Callable[[Mapping[str, str], Any, str], Any]
"""(names in the path, the value, where the client has found this proxy, http://HOST:PORT) -> the new one."""


class Fillings:
    """All kinds of answers that are filled in, those of 200 with JSON alone; the first that fits counts.

    Args:
        fills: what fills one in, by the path of its GET request.
    """

    def __init__(self, fills: Mapping[str, Fill]) -> None:
        self._fills = [(Pattern(path), fill) for path, fill in fills.items()]

    def find(self, method: str, path: str) -> Callable[[Any, str], Any] | None:
        """What fills the answer of a request in: the value and where the proxy is -> the new value."""
        if method.upper() != "GET":
            return None
        segments = segments_of(path)
        for pattern, fill in self._fills:
            if (names := pattern.match(segments)) is not None:
                return partial(fill, names)
        return None


def lookups(binary_address: str, secure: bool) -> dict[str, Fill]:
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

    return dict.fromkeys(_LOOKUPS, fill)
