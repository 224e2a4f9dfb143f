"""Records that cannot be used: all counted, few told of."""

import logging

import pytest

from enforcer.core.feeds.complaints import Complaints


def test_one_a_minute_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """With how many there were since; what a terminal would obey is escaped."""
    now, counted = 0.0, list[int]()
    complain = Complaints("weir.decisions", lambda: counted.append(1), lambda: now)
    with caplog.at_level(logging.WARNING):
        for _ in range(1_000):
            complain("ts: \x1b[2J")
        now = 61.0
        complain("the last")
    assert len(counted) == 1_001
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "weir.decisions: records that are not used: 1, such as ts: \\x1b[2J"
    assert second == "weir.decisions: records that are not used: 1000, such as the last"
