"""How a connection begins: which broker a client asks for, who it is, and what the broker says to that.

Logins pass as they are, and the broker checks them. What they name is believed once it has answered
CONNECTED.
"""

from typing import TYPE_CHECKING, Final

from enforcer.core.security.credentials import name_of_password, name_of_token
from enforcer.pulsar.context import Context
from enforcer.pulsar.lookup.targets import parse_target
from enforcer.wire.pulsar.commands import ServerError, parse, rewritten
from enforcer.wire.pulsar.frames import (
    ALL,
    AUTH_CHALLENGE,
    AUTH_RESPONSE,
    CONNECT,
    CONNECTED,
    ERROR,
    PING,
    PONG,
    BadFrame,
    Reason,
)
from streaming.contract.events import ANONYMOUS

if TYPE_CHECKING:
    from enforcer.pulsar.connection import Connection

FIRST_FRAME_TIMEOUT_MS: Final = 30_000
"""So long a new client may take for its CONNECT, and its login after that: as brokers keep one (30 s)."""

_FROM_CLIENT: Final = frozenset({AUTH_RESPONSE, PING, PONG})
_FROM_BROKER: Final = frozenset({AUTH_CHALLENGE, ERROR, PING, PONG})


class Handshake:
    """The only part of a connection until that is open (link.Part).

    Args:
        context: what all connections share.
        owner: the connection.
    """

    up = down = ALL
    held_bytes = 0

    def __init__(self, context: Context, owner: "Connection") -> None:
        self._context, self._owner = context, owner
        self._began_ms = context.now_ms()
        self._name: str | None = None
        self._method = self._original = ""
        self._challenged = False

    def take_up(self, kind: int, frame: bytes) -> bytes | None:
        """A frame of the client's: as it goes on to the broker, None if it does not."""
        if not self._owner.connect:
            if kind != CONNECT:
                raise BadFrame(Reason.UNEXPECTED)
            self._begin(frame)
            return None
        if kind not in _FROM_CLIENT:
            raise BadFrame(Reason.UNEXPECTED)
        if kind == AUTH_RESPONSE:
            if not self._challenged:
                # A broker that has let the client in already would take it for a login anew, and we for the
                # one that it is letting in.
                raise BadFrame(Reason.UNEXPECTED)
            self._challenged = False
            # A broker goes by the method of CONNECT, whatever is said here.
            self._see(parse(frame).response.auth_data)
        return frame

    def take_down(self, kind: int, frame: bytes) -> bytes:
        """A frame of the broker's."""
        if kind == CONNECTED:
            self._owner.opened(parse(frame), self._user())
        elif kind not in _FROM_BROKER:
            raise BadFrame(Reason.UNEXPECTED)
        elif kind == AUTH_CHALLENGE:
            self._challenged = True
        return frame

    def check(self, now_ms: float) -> None:
        """See link.Part."""
        if now_ms - self._began_ms > FIRST_FRAME_TIMEOUT_MS:
            self._owner.end("no_login")

    def close(self) -> None:
        """See link.Part."""

    def _begin(self, frame: bytes) -> None:
        body = parse(frame)
        asked = body.proxy_to_broker_url
        target = parse_target(asked) if asked else self._context.bootstrap()
        if target is None or not (asked == "" or self._context.targets.allows(target)):
            self._context.pulsar_metrics.refused_targets.inc()
            self._owner.refuse(
                ServerError.NOT_ALLOWED,
                f"the proxy knows no broker {asked[:300]!r}: look the topic up again, or see pulsar.targets",
                "refused_target",
            )
            return
        self._method = body.auth_method_name
        self._see(body.auth_data)
        self._original = body.original_principal
        through = asked != "" and self._context.targets.through(target)
        if body.HasField("proxy_to_broker_url") and not through:
            body.ClearField("proxy_to_broker_url")
            frame = rewritten(frame, body)
        self._owner.connect = frame
        self._owner.dial(target, self._context.bootstrap() if through else target)

    def _see(self, data: bytes) -> None:
        pulsar = self._context.pulsar
        self._name = None
        if self._method not in pulsar.auth_methods:
            return
        if self._method == "basic":
            self._name = name_of_password(data)
        elif self._method == "token":
            self._name = name_of_token(data, pulsar.token_claim)

    def _user(self) -> str:
        if self._name is not None and self._original and self._name in self._context.pulsar.proxy_roles:
            return self._original
        return self._name or ANONYMOUS
