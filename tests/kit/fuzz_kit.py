"""Makes hostile frames out of recorded ones: whatever a field can say, it says sooner or later.

All is drawn from the random source that the caller seeds, so a number repeats a case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from frame_corpus import Exchange, load
from frame_layout import HEAD_BYTES, Items, Layout, Text, layout_of

from enforcer.kafka.guard.apis import READABLE
from enforcer.wire.kafka.frames import uvarint

STRING_MAX = 32_767
_TEXT_SIZES = (0, 1, 249, 250, 255, 1_024, STRING_MAX)
_ITEMS_MAX = 4_000
_FRAMES_MAX = 12
_GROWN_BYTES_MAX = 300_000
"""No mutation makes a frame longer: how the proxy bears large ones has tests of its own."""
_VARINTS = (
    b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80\x01", b"\xff\x7f", b"\xff\xff\x03", b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80", b"\xff" * 10, b"\x80\x80\x00",
)  # fmt: skip
_KEYS = (*range(-2, 94), 255, 1_000, 32_767, -32_768)
_VERSIONS = (*range(-2, 20), 99, 32_767, -32_768)

Edit = tuple[int, int, bytes]
"""(start, end, what comes in its place)"""


@dataclass(frozen=True, slots=True)
class Seed:
    """A recorded message and where its fields lie."""

    key: int
    version: int
    data: bytes
    layout: Layout


@dataclass(frozen=True, slots=True)
class Seeds:
    """What was recorded, ready to be changed.

    Attributes:
        requests: of all clients.
        read: those of them whose body a proxy reads.
        answers: (API, version) -> the broker's.
    """

    requests: Sequence[Seed]
    read: Sequence[Seed]
    answers: dict[tuple[int, int], list[Seed]]


@cache
def seeds() -> Seeds:
    """The whole corpus."""
    exchanges = load()
    answers: dict[tuple[int, int], list[Seed]] = {}
    for one in exchanges:
        if one.answer:
            answers.setdefault((one.key, one.version), []).append(_seed(one, answer=True))
    requests = [_seed(one, answer=False) for one in exchanges]
    return Seeds(requests, [one for one in requests if one.key in READABLE], answers)


def _seed(one: Exchange, *, answer: bool) -> Seed:
    data = one.answer if answer else one.request
    return Seed(one.key, one.version, data, layout_of(one.key, one.version, data, answer=answer))


def mutated(rng: Random, seed: Seed) -> bytes:
    """The message with one to three things wrong with it; its own length is not among them."""
    edits = [edit for edit in (_edit(rng, seed) for _ in range(rng.choice((1, 1, 1, 2, 3)))) if edit]
    data, limit = seed.data, len(seed.data) + 1
    # From the last to the first; one that reaches into a later one is left out.
    for start, end, value in sorted(edits, key=lambda edit: edit[0], reverse=True):
        if end < limit and len(data) + len(value) < _GROWN_BYTES_MAX:
            data = data[:start] + value + data[end:]
            limit = start + 1
    if rng.random() < 0.25:
        data = rng.choice(_WHOLE)(rng, data)
    return data


def swapped(rng: Random, data: bytes) -> bytes:
    """A request of another API or version, with the body that it has."""
    key = rng.choice(_KEYS).to_bytes(2, "big", signed=True) if rng.random() < 0.5 else data[:2]
    return key + rng.choice(_VERSIONS).to_bytes(2, "big", signed=True) + data[4:]


def numbered(data: bytes, correlation_id: int, *, answer: bool) -> bytes:
    """The message with this correlation id; one that is too short for it stays as it is."""
    at = 0 if answer else 4
    if len(data) < at + 4:
        return data
    return data[:at] + correlation_id.to_bytes(4, "big", signed=True) + data[at + 4 :]


def framed(rng: Random, data: bytes, lies: float) -> bytes:
    """The message with its length in front, which now and then is wrong."""
    length = len(data)
    if rng.random() < lies:
        length = rng.choice((-1, 0, 1, 3, 4, length - 1, length + 1, length // 2, 2**31 - 1, -(2**31)))
    return length.to_bytes(4, "big", signed=True) + data


def requests(rng: Random, lies: float, broken: float | None = None) -> list[bytes]:
    """What one client sends, some of it as recorded: where every frame is broken, the first ends it all.

    Args:
        rng: chance.
        lies: how many of the lengths in front are wrong.
        broken: how many of the frames are mutated; drawn if it is not said.
    """
    broken = rng.choice((0.1, 0.3, 0.8)) if broken is None else broken
    frames = []
    for correlation_id in range(1, rng.randrange(1, _FRAMES_MAX) + 1):
        seed = rng.choice(seeds().read if rng.random() < 0.6 else seeds().requests)
        data = mutated(rng, seed) if rng.random() < broken else seed.data
        if rng.random() < broken / 10:
            data = swapped(rng, data)
        frames.append(framed(rng, numbered(data, correlation_id, answer=False), lies))
    return frames


def pieces(rng: Random, data: bytes) -> list[bytes]:
    """A stream as a network may cut it: whole, in single bytes at the start, or anywhere."""
    kind = rng.random()
    if kind < 0.4:
        return [data]
    if kind < 0.5:
        few = data[:40]
        return [few[at : at + 1] for at in range(len(few))] + ([data[40:]] if data[40:] else [])
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if end > start]


def _edit(rng: Random, seed: Seed) -> Edit | None:
    layout = seed.layout
    kind = rng.random()
    if kind < 0.25 and layout.numbers:
        return _number(rng, rng.choice(layout.numbers))
    if kind < 0.45 and layout.texts:
        return _count(rng, rng.choice(layout.texts))
    if kind < 0.65 and layout.arrays:
        return _count(rng, rng.choice(layout.arrays))
    if kind < 0.80 and layout.texts:
        return _text(rng, rng.choice(layout.texts))
    if kind < 0.90 and layout.arrays:
        return _items(rng, rng.choice(layout.arrays), seed.data)
    if layout.tags:
        at = rng.choice(layout.tags)
        return at, at + 1, _tag_section(rng)
    at = rng.randrange(len(seed.data))
    return at, at + 1, rng.randbytes(1)


def _number(rng: Random, span: tuple[int, int]) -> Edit:
    bits = 8 * (span[1] - span[0])
    top = 1 << (bits - 1)
    value = rng.choice((-top, -top + 1, -2, -1, 0, 1, 2, 7, top - 2, top - 1, rng.randrange(-top, top)))
    return *span, value.to_bytes(bits // 8, "big", signed=True)


def _prefix(kind: str, count: int) -> bytes:
    if kind == "compact":
        return uvarint(count + 1)
    size = 2 if kind == "classic16" else 4
    return count.to_bytes(size, "big", signed=True)


def _count(rng: Random, one: Text | Items) -> Edit:
    """Another length or count before the same content."""
    true = len(one.spans) if isinstance(one, Items) else one.end - one.body
    if one.kind == "compact" and rng.random() < 0.6:
        return one.start, one.body, rng.choice(_VARINTS)
    top = STRING_MAX if one.kind == "classic16" else 2**31 - 1
    low = -1 if one.kind == "compact" else -top - 1
    value = rng.choice((-1, 0, max(-1, true - 1), true + 1, true + 100, top - 1, top, low))
    return one.start, one.body, _prefix(one.kind, value)


def _text(rng: Random, text: Text) -> Edit:
    """Another content of a right length: long, not UTF-8, full of controls."""
    size = rng.choice(_TEXT_SIZES if rng.random() < 0.3 else _TEXT_SIZES[:5])
    filler = rng.choice(
        (b"a", b"\xff", b"\x00", b"\n", b"\xc3\x28", b"\xed\xa0\x80", "\u202e".encode(), b"\xe2\x82")
    )
    content = (filler * (size // len(filler) + 1))[:size]
    if rng.random() < 0.2:
        content = rng.randbytes(min(size, 64))
    return text.start, text.end, _prefix(text.kind, len(content)) + content


def _items(rng: Random, items: Items, data: bytes) -> Edit:
    """The same items many times, none of them, or a null list."""
    if not items.spans or rng.random() < 0.3:
        return items.start, items.end, _prefix(items.kind, rng.choice((-1, 0)))
    start, end = rng.choice(items.spans)
    one = data[start:end]
    most = _ITEMS_MAX if rng.random() < 0.05 else 50
    count = min(rng.choice((2, 3, 10, most)), _GROWN_BYTES_MAX // 2 // max(1, len(one)))
    return items.start, items.end, _prefix(items.kind, count) + one * count


def _tag_section(rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.4:
        count = rng.choice((1, 2, 50))
        return uvarint(count) + b"".join(
            uvarint(rng.choice((0, 1, number, 2**32 - 1))) + uvarint(3) + b"tag" for number in range(count)
        )
    if kind < 0.5:
        # Longer than the little that is looked at to see whether there is a tag at all.
        return uvarint(1) + uvarint(0) + uvarint(STRING_MAX) + rng.randbytes(1) * STRING_MAX
    return rng.choice(_VARINTS) + rng.choice((b"", b"\0", b"\0\0", rng.choice(_VARINTS)))


def _flipped(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(min(len(data), rng.choice((1, 1, 2, 8)))):
        changed[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)


_WHOLE: tuple[Callable[[Random, bytes], bytes], ...] = (
    lambda rng, data: data[: rng.randrange(len(data) + 1)],
    lambda rng, data: data + rng.choice((b"\0", b"\1", b"\xff", rng.randbytes(rng.randrange(1, 40)))),
    _flipped,
    # The head of one message and the body of another.
    lambda rng, data: data[:HEAD_BYTES] + rng.choice(seeds().requests).data[HEAD_BYTES:],
)
