"""Hashes of names: Kafka's own, byte for byte."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streaming.laws.name_hashes import partition_of, shard_of

NAMES = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), max_size=20)


@given(NAMES, st.integers(1, 64))
def test_a_shard_is_a_partition(names: list[str], shards: int) -> None:
    """Of one name and of many, in a slice of a column too."""
    column = pa.array(["first", *names], pa.string()).slice(1)
    assert partition_of(column, shards).tolist() == [shard_of(name, shards) for name in names]


def test_murmur2_is_that_of_kafka() -> None:
    """Values of the test of Kafka's own Utils.murmur2."""
    known = {
        "21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829, "abc": 479470107,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }  # fmt: skip
    for partitions in (1, 7, 2**31 - 1):
        expected = [(value & 0x7FFFFFFF) % partitions for value in known.values()]
        assert partition_of(pa.array(list(known)), partitions).tolist() == expected
