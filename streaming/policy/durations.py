"""Durations as settings of limits write them: a number and its unit (contract 3.4)."""

import re
from fractions import Fraction

from streaming.contract.errors import BadEvent

_NS_PER_UNIT = {"us": 1_000, "ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9}
_FORM = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s?(us|ms|s|m|h)")
# Two of them still add up within 64 bits.
MAX_DURATION_NS = 2**62
EXPECTED = "a number with its unit us, ms, s, m or h, such as 200ms"


def duration_ns(text: str) -> int:
    """Read `200ms` or `1.5s` as whole nanoseconds.

    Raises:
        BadEvent: no number, no unit, zero, or too long for 64 bits.
    """
    found = _FORM.fullmatch(text)
    if not found:
        raise BadEvent(f"is the text {text!r}; expected {EXPECTED}")
    # Exact: 0.1s is a hundred million, not the nearest double times a billion.
    length_ns = round(Fraction(found[1]) * _NS_PER_UNIT[found[2]])
    if not 0 < length_ns <= MAX_DURATION_NS:
        raise BadEvent(f"is {text}; expected more than 0 and at most {MAX_DURATION_NS} ns")
    return length_ns
