"""TLS as settings say it (docs/contract.md 5): what a server shows its clients, what a proxy asks of brokers.

Contexts only; sockets are enforcer/host's. The mistakes of a file, a cipher or a rule are found where the
settings are read, with their line.
"""

import ssl
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from pydantic import field_validator, model_validator

from enforcer.core.security.principal_mapping import MappingRules
from streaming.policy.settings import Settings, setting
from streaming.policy.validation import wrong

_OPTIONS: Final = (
    ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
)


class ClientAuth(StrEnum):
    """Whether clients show a certificate (Kafka's ssl.client.auth)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class Protocol(StrEnum):
    """Versions of TLS; older ones are broken."""

    TLS_1_2 = "TLSv1.2"
    TLS_1_3 = "TLSv1.3"


_VERSIONS: Final = {Protocol.TLS_1_2: ssl.TLSVersion.TLSv1_2, Protocol.TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class TlsSettings(Settings):
    """TLS to clients; all files are PEM, read from the working directory on."""

    certificate: str = setting(
        "", "the server's certificate and those between it and its CA; read again when it changes"
    )
    key: str = setting("", "its private key, without a passphrase; read again when it changes")
    client_ca: str = setting("", "CAs of client certificates; read again when it changes")
    client_auth: ClientAuth = setting(
        ClientAuth.NONE, "client certificates: none, requested (a client may have none) or required"
    )
    principal_mapping_rules: str = setting(
        "DEFAULT",
        "how a certificate's subject becomes a user: RULE:PATTERN/REPLACEMENT/[LU], ... as"
        " ssl.principal.mapping.rules of brokers (KIP-371)",
    )
    protocols: list[Protocol] = setting([Protocol.TLS_1_2, Protocol.TLS_1_3], "versions that are spoken")
    ciphers: str = setting("", "ciphers of TLS 1.2 by OpenSSL's names; empty: OpenSSL's own choice")
    sni: str = setting(
        "",
        "domain by which one port leads to all Kafka brokers: kafka.example.com: broker 3 is"
        " broker-3.kafka.example.com, any other name the bootstrap; empty: a port each",
    )

    @field_validator("protocols", mode="before")
    @classmethod
    def _known_protocols(cls, value: object) -> object:
        if not isinstance(value, list) or not value or not all(item in list(Protocol) for item in value):
            raise wrong(f"is {value!r}; expected a list of {', '.join(Protocol)}")
        return [Protocol(item) for item in value]

    @field_validator("principal_mapping_rules")
    @classmethod
    def _valid_rules(cls, value: str) -> str:
        try:
            MappingRules(value)
        except ValueError as error:
            raise wrong(
                f"is no list of rules: {error}; expected RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT"
            ) from None
        return value

    @model_validator(mode="after")
    def _usable(self) -> Self:
        server_context(self)
        return self


class UpstreamTlsSettings(Settings):
    """TLS to brokers; all files are PEM, read from the working directory on."""

    ca: str = setting("", "CAs of the brokers' certificates; empty: the system's")
    certificate: str = setting("", "certificate that the proxy shows to brokers; empty: none")
    key: str = setting("", "its private key, without a passphrase")
    check_hostname: bool = setting(True, "brokers' certificates must be for the host that is dialed")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        client_context(self)
        return self


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """What a listener with these settings speaks.

    Raises:
        PydanticCustomError: a file or a name in them is of no use; it says which and why.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= _OPTIONS
    versions = [_VERSIONS[name] for name in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers)
        except ssl.SSLError:
            raise wrong(f"has ciphers {settings.ciphers!r}, of which OpenSSL knows none") from None
    if not settings.certificate:
        raise wrong("has no certificate; expected certificate and key, files in PEM")
    load_pair(context, settings.certificate, settings.key)
    if settings.client_auth is not ClientAuth.NONE:
        if not settings.client_ca:
            raise wrong(
                f"has client_auth: {settings.client_auth} without client_ca; expected a file of CAs in PEM"
            )
        load_ca(context, settings.client_ca)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def client_context(settings: UpstreamTlsSettings) -> ssl.SSLContext:
    """How brokers are spoken to; raises as server_context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.check_hostname
    if settings.ca:
        load_ca(context, settings.ca)
    else:
        context.load_default_certs()
    if settings.certificate:
        load_pair(context, settings.certificate, settings.key)
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Take a certificate and its key; raises as server_context."""
    for path in filter(None, (certificate, key)):
        _readable(path)
    try:
        context.load_cert_chain(certificate, key or None, password=_no_passphrase)
    except (ssl.SSLError, ValueError) as error:
        raise wrong(
            f"has {certificate} and {key or 'no key'}, which are no certificate and its key"
            f" ({_reason(error)}); expected PEM, the key without a passphrase"
        ) from None


def load_ca(context: ssl.SSLContext, path: str) -> None:
    """Take the CAs of a file; raises as server_context."""
    _readable(path)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise wrong(
            f"has {path}, in which there is no CA ({_reason(error)}); expected certificates in PEM"
        ) from None


def _readable(path: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise wrong(f"has {path}, which cannot be read: {error.strerror}; expected a file in PEM") from None


def _reason(error: Exception) -> str:
    return (error.reason or "").replace("_", " ").lower() if isinstance(error, ssl.SSLError) else str(error)


def _no_passphrase() -> str:
    # Without this OpenSSL would ask for it at the terminal.
    raise ValueError("the key has a passphrase")
