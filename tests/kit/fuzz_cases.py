"""Streams that once did harm, each with what it was: a fault that the fuzzer finds gets its line here.

A case is what one client sends (frames with their lengths, hex) and how the broker answers each request: with
what was recorded for its API and version.
"""

from typing import NamedTuple


class Case(NamedTuple):
    """One stream.

    Attributes:
        kind: of the proxy, as in fuzz_rig.KINDS.
        what: it did.
        client: what the client sends.
    """

    kind: str
    what: str
    client: bytes


def _frame(hex_text: str) -> bytes:
    data = bytes.fromhex(hex_text)
    return len(data).to_bytes(4, "big") + data


CASES = (
    Case(
        "limited",
        "a client-id of 32,767 bytes that are not UTF-8 grew to 98,301, too many for the look-up's header",
        _frame("0014 0006 00000001 7fff" + "ff" * 32_767 + "00 02 0261" + "00" * 17 + "00001388 00"),
    ),
)
