"""The reference traces of the laws on `weir.usage` (tests/traces/README.md)."""

import pytest
from usage_kit import assert_agrees, decide, read_trace, trace_names

from streaming.laws.shares_table import SharesTable


@pytest.mark.parametrize("name", trace_names("shares"))
def test_shares_equal_the_reference(name: str) -> None:
    """A law decides what an independent reading of the contract decides."""
    events, timeline, expected = read_trace("shares", name)
    assert_agrees(decide(SharesTable(), events, timeline, end=True), expected)
