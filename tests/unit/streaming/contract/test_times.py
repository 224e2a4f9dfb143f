"""Times as people read them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contract.times import clock


@given(st.integers(0, 4_102_444_800_000))
def test_clock_shows_utc_with_milliseconds(ts_ms: int) -> None:
    """Time of day as the calendar has it, always with three decimals."""
    whole_s, ms = divmod(ts_ms, 1000)
    assert clock(ts_ms) == f"{datetime.fromtimestamp(whole_s, UTC):%H:%M:%S}.{ms:03d}"


@pytest.mark.parametrize("ts", ["09:24", 1.5, None, ["odd"]])
def test_what_is_no_time_is_refused(ts: object) -> None:
    """Anybody can write to a topic: the caller shows such a decision field by field."""
    with pytest.raises((TypeError, ValueError)):
        clock(ts)  # type: ignore[arg-type]
