"""Certificates in use: who a client is by its own, and files that are read again when they change."""

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from pydantic_core import PydanticCustomError

from enforcer.core.security.principal_mapping import MappingRules, NoUser, subject_of
from enforcer.core.security.tls import (
    ClientAuth,
    TlsSettings,
    UpstreamTlsSettings,
    client_context,
    server_context,
)
from enforcer.core.security.watched import WatchedFiles
from streaming.contract.events import ANONYMOUS

logger = logging.getLogger(__name__)

_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED."""
_REASONS: Final = {
    "HTTP_REQUEST": "no_tls",
    "WRONG_VERSION_NUMBER": "no_tls",
    "UNSUPPORTED_PROTOCOL": "protocol",
    "NO_PROTOCOLS_AVAILABLE": "protocol",
    "NO_SHARED_CIPHER": "cipher",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "CALLBACK_FAILED": "unknown_name",
}


class Visitor(NamedTuple):
    """What is known of a client that has come, most of it by TLS.

    Attributes:
        user: by its certificate; ANONYMOUS without one.
        name: the server that it asked for (SNI); empty: none.
        refused: why it may not stay; empty: it may.
        peer: its address, for a message; None if it is not known any more.
    """

    user: str = ANONYMOUS
    name: str = ""
    refused: str = ""
    peer: object = None


def _heard(tell: Callable[[Any], object], told: Any) -> None:
    """What Python cannot raise, but for a server's name (SNI) that is no ASCII: anybody may ask for one."""
    # Later Pythons have it in their message.
    named = isinstance(told.object, bytes) or "servername" in (told.err_msg or "")
    if not (told.exc_type is UnicodeDecodeError and named):
        tell(told)


# ssl reads a name before `sni_callback` hears of it, and each such would be a traceback in the log.
sys.unraisablehook = partial(_heard, sys.unraisablehook)


def failure_of(error: OSError) -> str:
    """Why a handshake failed, as `tls_failures_total` has it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "expired" if error.verify_code == _EXPIRED else "untrusted"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return _REASONS.get(reason, "refused_by_client" if "ALERT" in reason else "other")
    # uvloop aborts what takes too long; all else ended before it was done.
    return "timeout" if isinstance(error, ConnectionAbortedError) else "closed"


class WatchedContext(WatchedFiles[ssl.SSLContext]):
    """A context by its files as they are now; connections that are open go on as they are."""

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Iterable[str]) -> None:
        stays = "the certificate in use stays, what has changed is of no use"
        super().__init__(make, files, logger, stays, PydanticCustomError)

    @classmethod
    def of_server(cls, settings: TlsSettings, named: Any = None) -> "WatchedContext":
        """What clients are shown; `named` hears which server each asks for (ssl's `sni_callback`)."""

        def make() -> ssl.SSLContext:
            context = server_context(settings)
            context.sni_callback = named
            return context

        return cls(make, (settings.certificate, settings.key, settings.client_ca))

    @classmethod
    def of_metrics(cls, settings: TlsSettings) -> Callable[[], ssl.SSLContext]:
        """The same for /metrics, whose readers show no certificate."""
        return cls.of_server(settings.model_copy(update={"client_auth": ClientAuth.NONE})).now

    @classmethod
    def of_client(cls, settings: UpstreamTlsSettings) -> "WatchedContext":
        """How brokers are spoken to."""
        return cls(lambda: client_context(settings), (settings.ca, settings.certificate, settings.key))


class NewestContext(ssl.SSLContext):
    """For a library that keeps one context: each of its connections is made by the files as they are then.

    A context forgets no CA, so the files cannot be read into one that is in use.
    """

    _now: Callable[[], ssl.SSLContext]
    _one: Lock
    _spoken: Iterable[str] = ()

    @classmethod
    def of_client(cls, settings: UpstreamTlsSettings) -> "NewestContext":
        """See WatchedContext."""
        made = cls(ssl.PROTOCOL_TLS_CLIENT)
        made._now, made._one = WatchedContext.of_client(settings).now, Lock()
        return made

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """See ssl.SSLContext; httpcore2 calls it before each connection."""
        self._spoken = alpn_protocols

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        """See ssl.SSLContext; anyio calls it in threads."""
        with self._one:
            context = self._now()
            if self._spoken:
                context.set_alpn_protocols(self._spoken)
            return context.wrap_bio(*args, **named)


class ServerTls:
    """TLS of one listener's clients.

    Attributes:
        now: what the next client is spoken to by.

    Args:
        settings: as the section has them.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._rules = MappingRules(settings.principal_mapping_rules)
        self._names: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        self.now = WatchedContext.of_server(settings, self._named).now

    def _named(self, client: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        if name is not None:
            self._names[client] = name

    def visitor(self, transport: asyncio.BaseTransport, peer: object) -> Visitor:
        """Who has come from there; a user that no rule names is refused, as a broker does."""
        client = transport.get_extra_info("ssl_object")
        shown = client.getpeercert(binary_form=True)
        try:
            user = self._rules.user(subject_of(shown)) if shown else ANONYMOUS
        except NoUser as unknown:
            logger.warning("a connection from %s ends: %s", peer, unknown)
            return Visitor(refused="unknown_user", peer=peer)
        return Visitor(user, self._names.get(client, ""), peer=peer)
