"""The reference traces of the laws on `weir.usage` (tests/traces/README.md)."""

import pytest
from usage_kit import assert_agrees, decide, read_trace, trace_names

from streaming.laws.dispatch.table import DispatchTable
from streaming.laws.shares.table import SharesTable


@pytest.mark.parametrize("name", trace_names("shares"))
def test_shares_equal_the_reference(name: str) -> None:
    """Members that come, go idle and expire, in shadow and not, with and without throttled times."""
    events, timeline, expected = read_trace("shares", name)
    assert_agrees(decide(SharesTable(), events, timeline, end=True), expected)


@pytest.mark.parametrize("name", trace_names("dispatch"))
def test_dispatch_equals_the_reference(name: str) -> None:
    """Every level, both dimensions, precise and batch counting, with and without a backlog."""
    events, timeline, expected = read_trace("dispatch", name)
    assert_agrees(decide(DispatchTable(), events, timeline, end=True), expected)
