"""The examples in the collector's modules hold."""

import doctest
from types import ModuleType

import pytest

from streaming.collect import reports
from streaming.collect.backlog import sent, unsettled
from streaming.collect.kafka import connection, ledgers
from streaming.collect.pulsar import counters, limits, notes, readings
from streaming.collect.pulsar_backlog import eviction
from streaming.collect.pulsar_backlog import readings as backlog_readings
from weir.collect import pulsar


@pytest.mark.parametrize(
    "module",
    [
        reports,
        sent,
        unsettled,
        connection,
        ledgers,
        counters,
        limits,
        notes,
        readings,
        eviction,
        backlog_readings,
        pulsar,
    ],
    ids=lambda m: m.__name__,
)
def test_examples(module: ModuleType) -> None:
    """All of them, and there are some."""
    results = doctest.testmod(module)
    assert results.attempted > 0 and results.failed == 0
