"""A client that logs in on a rig of Kafka's connection, and the broker that answers it."""

from typing import Any

from connection_kit import Rig, framed, frames_of
from kafka.protocol import sasl
from kafka_kit import build, request, response
from sample_kit import sample_of

ILLEGAL_STATE, AUTHENTICATION_FAILED = 34, 58
ALICE = b"\0alice\0a-secret"
SCRAM = (b"n,,n=alice,r=nonce", b"c=biws,r=noncenonce,p=proof")
LIFETIME_MS = 3_600_000


class Visit:
    """A client that logs in on a rig, and the broker that answers; `life_ms`: for how long it lets it in."""

    life_ms = LIFETIME_MS

    def __init__(self, beside: Rig | None = None, peer: str = "10.0.0.1", tls: bool = True, **settings: Any):
        self.rig = Rig(beside, **settings)
        if beside is not None:
            self.rig.concerns, self.rig.metrics = beside.concerns, beside.metrics
        self.rig.client.ssl_object = object() if tls else None
        self.rig.connect()
        self.rig.connection.peer = (peer, 4711)

    @property
    def user(self) -> str:
        """Who the proxy takes it for."""
        return self.rig.connection.user

    def ask(self, message: Any) -> None:
        """The client sends."""
        self.rig.connection.data_received(framed(request(message)[0]))

    def offer(self, mechanism: str) -> None:
        """The client sends SaslHandshake."""
        self.ask(build(sasl.SaslHandshakeRequest, 1, mechanism=mechanism))

    def offered(self, error: int = 0) -> None:
        """The broker answers it."""
        answer = build(sasl.SaslHandshakeResponse, 1, error_code=error, mechanisms=["PLAIN"])
        self.rig.answer([response(answer)])

    def token(self, token: bytes) -> None:
        """The client sends SaslAuthenticate."""
        self.ask(build(sasl.SaslAuthenticateRequest, 2, auth_bytes=token))

    def told(self, error: int = 0, challenge: bytes = b"") -> None:
        """The broker answers it."""
        values = {"error_code": error, "error_message": "no" if error else None, "auth_bytes": challenge}
        answer = build(sasl.SaslAuthenticateResponse, 2, session_lifetime_ms=self.life_ms, **values)
        self.rig.answer([response(answer)])

    def begin(self, mechanism: str = "PLAIN", token: bytes = ALICE) -> None:
        """As far as the broker's last word."""
        self.offer(mechanism)
        self.offered()
        self.token(token)

    def fail(self, count: int = 1) -> "Visit":
        """So many wrong passwords."""
        for _ in range(count):
            self.begin()
            self.told(AUTHENTICATION_FAILED)
            self.rig.desk.run(self.rig.settings.failed_login_delay_ms)
        return self

    @property
    def answers(self) -> int:
        """How many the client has got."""
        return len(frames_of(self.rig.client.data))

    @property
    def sent(self) -> int:
        """Requests that have reached the broker."""
        return len(self.rig.upstream.sent)

    def count(self, name: str, **labels: str) -> float:
        """A counter."""
        return sample_of(self.rig.metrics.registry, f"weir_proxy_{name}_total", labels)


def plain(visit: Visit) -> None:
    """All that a client says to log in by PLAIN, and the answers."""
    visit.begin()
    visit.told()


def scram(visit: Visit) -> None:
    """The same by SCRAM."""
    visit.begin("SCRAM-SHA-512", SCRAM[0])
    visit.told(challenge=b"r=noncenonce,s=salt,i=4096")
    visit.token(SCRAM[1])
    visit.told(challenge=b"v=proof")
