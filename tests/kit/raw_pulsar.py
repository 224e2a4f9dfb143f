"""A Pulsar client without manners: frames by hand, as many at a time as it likes."""

import socket
import struct
from contextlib import AbstractContextManager
from typing import Any

from enforcer.wire.pulsar.commands import command, parse
from enforcer.wire.pulsar.frames import CONNECT, CONNECTED
from enforcer.wire.pulsar.schema import BODIES

_SIZE = struct.Struct(">I")
_LIMIT_S = 20.0


class RawPulsar(AbstractContextManager[Any]):
    """One connection; a context manager.

    Args:
        service: HOST:PORT.
        user: logs in so, with a password that nobody looks at.
    """

    def __init__(self, service: str, user: str) -> None:
        host, _, port = service.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _LIMIT_S)
        self._come = b""
        self.send(
            command(
                CONNECT, client_version=b"raw", protocol_version=21, auth_method_name="basic",
                auth_data=f"{user}:x".encode(),
            )
        )  # fmt: skip
        kind, _ = self.receive()
        assert kind == CONNECTED

    def send(self, *frames: bytes) -> None:
        """Send frames in one go."""
        self._socket.sendall(b"".join(frames))

    def limit(self, seconds: float) -> None:
        """How long `receive` waits, then it raises TimeoutError."""
        self._socket.settimeout(seconds)

    def receive(self) -> tuple[int, Any]:
        """The next frame that is known here: its kind and body; 0 at the end of the connection."""
        while True:
            if len(self._come) >= 4 and len(self._come) >= (end := 4 + _SIZE.unpack_from(self._come)[0]):
                frame, self._come = self._come[:end], self._come[end:]
                if frame[9] in BODIES:
                    return frame[9], parse(frame)
                continue
            data = self._socket.recv(1 << 16)
            if not data:
                return 0, None
            self._come += data

    def answers(self, count: int) -> list[tuple[int, Any]]:
        """The next ones."""
        return [self.receive() for _ in range(count)]

    def __exit__(self, *_: object) -> None:
        self._socket.close()
