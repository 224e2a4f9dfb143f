"""What an event loop does not tell of its sockets: ends behind unread bytes, bytes behind an error."""

import asyncio
import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator, Mapping
from typing import Final

Address = tuple[str, int]

_READ_BYTES: Final = 65_536


def descriptor_of(transport: asyncio.BaseTransport) -> int:
    """The file descriptor of a transport's socket; -1 if it has none any more."""
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def is_secure(transport: asyncio.BaseTransport) -> bool:
    """Whether its bytes are of TLS, which nobody but its loop can read or write."""
    return transport.get_extra_info("ssl_object") is not None


def under_way(transport: asyncio.Transport) -> int:
    """Bytes of what was written that the other side's system does not have: at 0 an end tears nothing."""
    descriptor = descriptor_of(transport)
    if descriptor < 0:
        return 0
    (unacknowledged,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))
    return int(unacknowledged) + transport.get_write_buffer_size()


def peer_of(transport: asyncio.BaseTransport) -> object:
    """The address of a transport's other side, for a message; None if it is not known any more."""
    try:
        return transport.get_extra_info("peername")
    except ValueError:
        # uvloop asks the system each time once the socket was looked at, and after its end there is none.
        return None


def ended(sockets: Mapping[int, bool]) -> set[int]:
    """Sockets whose other side has ended, as far as it is news; one system call for all.

    Args:
        sockets: descriptor -> whether it is known that the other side sends no more: then it is news only
            that it is gone, and does not read either.
    """
    poll = select.poll()
    for descriptor, known in sockets.items():
        poll.register(descriptor, 0 if known else select.POLLRDHUP)
    return {descriptor for descriptor, _ in poll.poll(0)}


def unread(transport: asyncio.BaseTransport, limit: int) -> Iterator[bytes]:
    """What has come on a socket that failed before all of it was read, at most about so many bytes.

    An event loop gives up a connection when a write fails; what the other side sent before is still there.
    """
    if is_secure(transport):
        return
    descriptor = descriptor_of(transport)
    while descriptor >= 0 and limit > 0:
        try:
            data = os.read(descriptor, min(limit, _READ_BYTES))
        except OSError:
            return
        if not data:
            return
        limit -= len(data)
        yield data
