"""Events as the benchmarks send them: the bytes that a proxy or broker would write, made fast."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming.columns.byte_strings import Integers
from streaming.columns.json_rows import objects
from streaming.columns.packed import pack
from streaming.laws.name_hashes import partition_of

SEED: Final = 20261121
"""Of every random choice, so that two runs measure the same events."""
T0: Final = 1_795_166_700_000
"""Time of the first event where events carry their own, ms."""
RATE, BURST = 5.0, 55.0
"""Of the default quota: most requests are admitted, some are not."""
POLICIES: Final[dict[str, Any]] = {
    "quotas[user=<default>]": {"controller_mutation_rate": RATE, "controller_mutation_burst": BURST}
}
_ROWS: Final = 16_384
"""Made at once."""


def user(number: int) -> str:
    """Name of one principal."""
    return f"principal-{number:06d}"


def requests(
    count: int, principals: int, *, name: str = "bench", ts: bool = False
) -> Iterator[tuple[bytes, bytes]]:
    """Records (key, value) of requests by principals drawn at random.

    Args:
        count: how many.
        principals: of how many.
        name: what their ids begin with.
        ts: whether events carry their own time, ten to a millisecond, as lines of a file must; else the
            record's counts.
    """
    for batch in request_rows(count, principals, rows=_ROWS, name=name):
        keys = batch["subject"].cast(pa.binary())
        values = objects("request", batch if ts else batch.drop_columns("ts"))
        yield from zip(keys.to_pylist(), values.to_pylist(), strict=True)


def packed_requests(
    count: int, principals: int, *, partitions: int, rows: int, skew: float = 0.0
) -> Iterator[tuple[bytes, bytes, int]]:
    """The same requests as packed records: (no key, value, partition).

    Args:
        count: requests, at least.
        principals: drawn at random, of how many.
        partitions: of the topic: a record holds requests of one, and one with busier principals has more of
            the records.
        rows: requests a record.
        skew: exponent of Zipf's law by which principals are drawn, the first most often; 0: all alike.
    """
    draw = np.random.default_rng(SEED)
    users = users_of(np.arange(principals))
    places = partition_of(_subjects(users), partitions)
    own = [np.flatnonzero(places == partition) for partition in range(partitions)]
    often = [np.cumsum(_weights(principals, skew)[numbers]) for numbers in own]
    parts = np.array([each[-1] for each in often]) / sum(each[-1] for each in often)
    written = np.zeros(partitions, dtype=np.int64)
    for first in range(0, count, rows):
        partition = int(np.argmax(parts * (first // rows + 1) - written))
        written[partition] += 1
        who = own[partition][_drawn(draw, often[partition], rows)]
        for value in packed_by(who, name="bench", first=first):
            yield b"", value, partition


def packed_by(who: Integers, *, name: str, first: int = 0) -> Iterator[bytes]:
    """Requests of these principals, one each in this order, as packed records; their ids are numbered from
    `first` on.
    """
    users = users_of(who)
    yield from pack("request", pa.record_batch(_columns(name, first, users, _subjects(users))))


def drawn(draw: np.random.Generator, principals: int, count: int, skew: float) -> Integers:
    """Numbers of so many principals, each drawn by Zipf's law with this exponent; 0: no two alike."""
    if not skew:
        return draw.choice(principals, count, replace=False)
    return _drawn(draw, np.cumsum(_weights(principals, skew)), count)


def users_of(numbers: Integers) -> pa.Array:
    """Names of principals, as `user` writes them."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 6, "0")
    return pc.binary_join_element_wise("principal-", digits, "")


def request_rows(count: int, principals: int, *, rows: int, name: str = "bench") -> Iterator[pa.RecordBatch]:
    """The same requests as columns with their own times, ten to a millisecond, so many rows at a time."""
    draw = np.random.default_rng(SEED)
    users = users_of(np.arange(principals))
    subjects = _subjects(users)
    for first in range(0, count, rows):
        who = pa.array(draw.integers(principals, size=min(rows, count - first)))
        columns = _columns(name, first, users.take(who), subjects.take(who))
        yield pa.record_batch({**columns, "ts": pa.array(T0 + np.arange(first, first + len(who)) // 10)})


def _subjects(users: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("user=", users, "")


def _weights(principals: int, skew: float) -> NDArray[np.float64]:
    """How often each is drawn beside the first, by Zipf's law."""
    return np.arange(1.0, principals + 1) ** -skew


def _drawn(draw: np.random.Generator, often: NDArray[np.float64], count: int) -> Integers:
    """Places drawn with the weights whose sums these are."""
    return np.asarray(np.searchsorted(often, draw.random(count) * often[-1], side="right"), np.int64)


def _columns(name: str, first: int, users: pa.Array, subjects: pa.Array) -> dict[str, pa.Array]:
    """Requests of one item each, the number of the first one given."""
    rows = len(users)
    number = pa.array(np.arange(first, first + rows)).cast(pa.string())
    names = pc.binary_join_element_wise("topic-", number, "")
    mutations = pa.array(np.full(rows, 3, dtype=np.int64))
    items = pa.struct([("name", pa.string()), ("mutations", pa.int64())])
    listed = pa.StructArray.from_arrays([names, mutations], fields=list(items))
    return {
        "id": pc.binary_join_element_wise(name, number, "-"),
        "proxy": pa.repeat("bench", rows),
        "user": users,
        "client_id": pa.repeat("app", rows),
        "api": pa.repeat("CreateTopics", rows),
        "api_version": pa.repeat(7, rows),
        "strict": pa.repeat(True, rows),
        "validate_only": pa.repeat(False, rows),
        "items": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32)), listed),
        "subject": subjects,
    }
