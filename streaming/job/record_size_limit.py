"""Output records within the size that a broker takes: one that is refused would end the query for ever."""

import numpy as np

from streaming.columns.outputs import Outputs
from streaming.columns.records import NO_ROW, Records
from streaming.contract.decisions import DECISIONS, RECORD_BYTES_MAX, dead_letter

VALUE_BYTES_KEPT = 600_000
"""Base64 makes four bytes of three."""


def limit_record_size(outputs: Outputs, records: Records) -> None:
    """Replace every output that is too large by a dead letter that says so and keeps the record's beginning.

    Args:
        outputs: of one step, changed in place.
        records: that step's input.
    """
    if outputs.surely_within(RECORD_BYTES_MAX):
        return
    too_large = np.flatnonzero(outputs.sizes() > RECORD_BYTES_MAX).tolist()
    if not too_large:
        return
    sinks, values, sources = outputs.sink, outputs.value, outputs.source
    for position in too_large:
        what = "decision" if sinks[position] == DECISIONS else "dead letter"
        source = sources[position]
        whole, row = records.value_of(source), records.row_of(source)
        kept = whole[:VALUE_BYTES_KEPT]
        letter = dead_letter(
            reason=f"its {what} has {len(values[position])} bytes, more than {RECORD_BYTES_MAX}; the first "
            f"{len(kept)} of the record's {len(whole)} bytes are kept",
            topic=records.topic[source],
            partition=int(records.partition[source]),
            offset=int(records.offset[source]),
            ts=records.ts_of(source),
            value=kept,
            row=None if row == NO_ROW else row,
        )
        outputs.bury(position, letter)
