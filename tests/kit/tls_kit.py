"""Certificates of a CA of our own, as files."""

import datetime
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from enforcer.core.security.tls import TlsSettings

LOOPBACK = "127.0.0.1"
DOMAIN = "kafka.test"
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Pair(NamedTuple):
    """A certificate with those between it and its CA, and its key; PEM."""

    certificate: str
    key: str


class Authority:
    """Issues certificates into a folder.

    Attributes:
        ca: file with the CA's own.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._ca, self._count = folder, trustme.CA(organization_name="Weir's tests"), 0
        self.ca = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, *names: str, **subject: Any) -> Pair:
        """One more pair; `subject` as trustme's issue_cert has it."""
        self._count += 1
        made = self._ca.issue_cert(*names, **subject)
        pair = Pair(*(str(self._folder / f"{self._count}-{kind}.pem") for kind in ("certificate", "key")))
        Path(pair.certificate).unlink(missing_ok=True)
        for blob in made.cert_chain_pems:
            blob.write_to_path(pair.certificate, append=True)
        # As Java reads it.
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        Path(pair.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return pair

    def server(self) -> Pair:
        """For this machine, and any name in DOMAIN."""
        return self.issue(LOOPBACK, "localhost", DOMAIN, f"*.{DOMAIN}")

    def door(self, **more: Any) -> TlsSettings:
        """What a server of this machine speaks; clients' certificates, if it asks for any, are this CA's."""
        pair = self.server()
        return TlsSettings(certificate=pair.certificate, key=pair.key, client_ca=self.ca, **more)

    def listener(self, name: str = "localhost") -> dict[str, str]:
        """Properties by which the listener for logins of a broker of that name speaks TLS."""
        pair, store = self.issue(name), self._folder / "broker.pem"
        store.write_text(Path(pair.key).read_text() + Path(pair.certificate).read_text())
        return {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL",
            "listener.name.sasl.ssl.keystore.type": "PEM",
            "listener.name.sasl.ssl.keystore.location": str(store),
        }

    def client(self, name: str, **subject: Any) -> Pair:
        """For a user: CN=name,OU=Clients,O=trustme..., as trustme writes subjects."""
        return self.issue(
            f"{name}@example.com", common_name=name, organization_unit_name="Clients", **subject
        )

    def expired(self, name: str) -> Pair:
        """One that was good until 2020."""
        return self.client(name, not_before=PAST - datetime.timedelta(days=30), not_after=PAST)

    def early(self, name: str) -> Pair:
        """One that is good from tomorrow on."""
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        return self.client(name, not_before=tomorrow, not_after=tomorrow + datetime.timedelta(days=1))

    def context(self, shown: Pair | None = None) -> ssl.SSLContext:
        """A client that trusts this CA, and shows a certificate."""
        made = ssl.create_default_context(cafile=self.ca)
        if shown is not None:
            made.load_cert_chain(*shown)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How clients of Kafka come to a proxy: as they are, or by TLS and with a login.

    Attributes:
        settings: the proxy's (Cluster.config).
        rdkafka, python, java: properties of clients, in the words of each.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    rdkafka: dict[str, Any] = field(default_factory=dict)
    python: dict[str, Any] = field(default_factory=dict)
    java: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def login(cls, ca: str, user: str, password: str) -> Self:
        """By TLS, whose CA is in this file, and then by SCRAM; before a proxy that is set up already."""
        protocol, mechanism = "SASL_SSL", "SCRAM-SHA-512"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return cls(
            rdkafka={
                "security.protocol": protocol, "ssl.ca.location": ca, "sasl.mechanism": mechanism,
                "sasl.username": user, "sasl.password": password,
            },
            python={
                "security_protocol": protocol, "ssl_cafile": ca, "sasl_mechanism": mechanism,
                "sasl_plain_username": user, "sasl_plain_password": password,
            },
            java={
                "security.protocol": protocol, "ssl.truststore.type": "PEM",
                "ssl.truststore.location": ca, "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            },
        )  # fmt: skip

    @classmethod
    def secured(cls, authority: Authority, user: str, password: str) -> Self:
        """The same, and the proxy's settings."""
        settings = {"sasl": True, "tls": authority.door()}
        return replace(cls.login(authority.ca, user, password), settings=settings)


PLAIN = Way()
