"""Output records within the size that a broker takes: one that is refused would end the query for ever."""

from streaming.contract.decisions import DEADLETTER, DECISIONS, Outputs, dead_letter
from streaming.laws.records import Records

RECORD_BYTES_MAX = 1_000_000
"""Kafka's default message.max.bytes is 1,048,588; the rest is left to headers and the batch's overhead."""
VALUE_BYTES_KEPT = 600_000
"""Base64 makes four bytes of three."""


def fit(outputs: Outputs, records: Records) -> None:
    """Replace every output that is too large by a dead letter that says so and keeps the record's beginning.

    Args:
        outputs: of one step, changed in place.
        records: that step's input.
    """
    for position, value in enumerate(outputs.value):
        if len(value) + len(outputs.key[position]) * 4 <= RECORD_BYTES_MAX:
            continue
        what = "decision" if outputs.sink[position] == DECISIONS else "dead letter"
        source = outputs.source[position]
        kept = records.value[source][:VALUE_BYTES_KEPT]
        outputs.sink[position] = DEADLETTER
        outputs.key[position] = ""
        outputs.value[position] = dead_letter(
            reason=f"its {what} has {len(value)} bytes, more than {RECORD_BYTES_MAX}; the first {len(kept)} "
            f"of the record's {len(records.value[source])} bytes are kept",
            topic=records.topic[source],
            partition=records.partition[source],
            offset=records.offset[source],
            ts=records.ts[source],
            value=kept,
        )
