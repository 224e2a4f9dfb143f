"""What real clients and a real broker said: the seeds of the fuzzer, made by `record_corpus.py`."""

import base64
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parents[1] / "attack" / "corpus.json"


class Exchange(NamedTuple):
    """One request and its answer, without their lengths.

    Attributes:
        client: who asked.
        key: API.
        version: its version.
        request: the request's bytes.
        answer: the response's; empty where there is none, as for acks=0.
    """

    client: str
    key: int
    version: int
    request: bytes
    answer: bytes


def load() -> list[Exchange]:
    """All exchanges, in the order of the file."""
    return [
        Exchange(client, key, version, _unpacked(request), _unpacked(answer))
        for client, key, version, request, answer in json.loads(CORPUS.read_text())
    ]


def save(exchanges: Iterable[Exchange]) -> None:
    """Write them, one a line, so that a change shows as one."""
    lines = [
        json.dumps([one.client, one.key, one.version, _packed(one.request), _packed(one.answer)])
        for one in sorted(exchanges)
    ]
    CORPUS.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9, -15)).decode()


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text), -15)
