"""Windows of the mutation law's subjects as Arrow columns.

Most windows are empty most of the time: a resting subject has none. So only those that hold something are
written, each with its slot.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from streaming.laws.mutation.law import PLAIN_WINDOWS
from streaming.laws.mutation.rates import Doubles

NO_RING: Final[Doubles] = np.empty(0)
_SLOT: Final = pa.field("slot", pa.uint8(), nullable=False)
_COUNT: Final = pa.field("count", pa.float64(), nullable=False)


def plain_column(plain: Doubles) -> pa.Array:
    """The plain rates' windows (rows x 11) as lists of (slot, count)."""
    # By their bits, so that a negative zero would come back as one too.
    rows, slots = np.nonzero(plain.view(np.int64))
    first = np.zeros(len(plain) + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=len(plain)), out=first[1:])
    counts = pa.StructArray.from_arrays(
        [pa.array(slots.astype(np.uint8)), pa.array(plain[rows, slots])], fields=[_SLOT, _COUNT]
    )
    return pa.ListArray.from_arrays(pa.array(first), counts)


def plain_of(column: pa.Array) -> Doubles:
    """The windows that `plain_column` wrote."""
    plain = np.zeros((len(column), PLAIN_WINDOWS))
    offsets = column.offsets.to_numpy()
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    counts = column.values.slice(int(offsets[0]), len(rows))
    plain[rows, counts.field("slot").to_numpy()] = counts.field("count").to_numpy()
    return plain


def ring_column(rings: Mapping[int, Doubles], rows: int) -> pa.Array:
    """Rings by row as lists, empty where there is none."""
    lengths = np.zeros(rows + 1, dtype=np.int32)
    for row, ring in rings.items():
        lengths[row + 1] = len(ring)
    windows = np.concatenate([rings[row] for row in sorted(rings)]) if rings else NO_RING
    return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths, dtype=np.int32)), pa.array(windows))


def rings_of(column: pa.Array) -> dict[int, Doubles]:
    """The rings that `ring_column` wrote."""
    offsets = column.offsets.to_numpy()
    windows = column.values.to_numpy(zero_copy_only=False)
    return {
        int(row): windows[offsets[row] : offsets[row + 1]].copy() for row in np.flatnonzero(np.diff(offsets))
    }
