"""Output records within the size that a broker takes: one that is refused would end the query for ever."""

import numpy as np

from streaming.columns.outputs import Outputs
from streaming.columns.records import NO_ROW, Records
from streaming.contract.decisions import RECORD_BYTES_MAX, dead_letter

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
    for place, letter in enumerate(outputs.letters):
        if len(letter.value) > RECORD_BYTES_MAX:
            shorter = _letter("dead letter", len(letter.value), records, letter.source)
            outputs.letters[place] = letter._replace(value=shorter)
    # The others stay columns: as such they leave packed, and to the partition that their law chooses.
    said, outputs.columns = outputs.columns, []
    for decided in said:
        fits = decided.sizes() <= RECORD_BYTES_MAX
        if fits.all():
            outputs.add(decided)
            continue
        outputs.add(decided.take(np.flatnonzero(fits)))
        large = decided.take(np.flatnonzero(~fits))
        for value, source in zip(large.column("value"), large.source.tolist(), strict=True):
            buried = _letter("decision", len(value.as_buffer()), records, source)
            outputs.add_dead_letter(buried, ts=records.ts_of(source), source=source)


def _letter(what: str, size: int, records: Records, source: int) -> bytes:
    """A dead letter in place of an output about this record that has so many bytes."""
    whole, row = records.value_of(source), records.row_of(source)
    kept = whole[:VALUE_BYTES_KEPT]
    return dead_letter(
        reason=f"its {what} has {size} bytes, more than {RECORD_BYTES_MAX}; the first "
        f"{len(kept)} of the record's {len(whole)} bytes are kept",
        topic=records.topic[source],
        partition=int(records.partition[source]),
        offset=int(records.offset[source]),
        ts=records.ts_of(source),
        value=kept,
        row=None if row == NO_ROW else row,
    )
