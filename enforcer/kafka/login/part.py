"""Who a client is, seen in its SASL exchange with the broker."""

from typing import Final

from enforcer.core.metrics import Metrics
from enforcer.core.settings import DelegationTokens, ProxySettings
from enforcer.kafka.part import Concern, Link, Part, Request, Slot
from enforcer.wire.kafka.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE
from enforcer.wire.kafka.sasl import SaslObserver, Unreadable

SASL_KEYS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


class LoginConcern(Concern):
    """Reads every login.

    Args:
        settings: how names are found.
        metrics: counts logins that are refused.
    """

    keys = SASL_KEYS

    def __init__(self, settings: ProxySettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics

    def part(self, link: Link) -> Part:
        token_ids = self._settings.delegation_tokens is DelegationTokens.BY_ID
        return LoginPart(link, SaslObserver(self._settings.oauth_claim, token_ids), self._metrics)


class LoginPart(Part):
    """The logins of one connection; sets `Link.user`.

    Args:
        link: the connection.
        observer: follows its exchange.
        metrics: counts logins that are refused.
    """

    def __init__(self, link: Link, observer: SaslObserver, metrics: Metrics) -> None:
        self._link = link
        self._observer = observer
        self._metrics = metrics

    @property
    def free(self) -> bool:
        return not self._observer.waiting

    def take(self, request: Request) -> bool:
        try:
            self._observer.on_request(request.frame, request.header)
        except Unreadable as login:
            self._metrics.refused_logins.labels(login.reason).inc()
            self._link.answer(request, login.response)
            return False
        request.readers.append(self._answered)
        return True

    def _answered(self, slot: Slot, response: bytes) -> bytes:
        self._observer.on_response(response, slot.api_key, slot.api_version)
        if self._observer.succeeded:
            self._link.user = self._observer.principal
        return response
