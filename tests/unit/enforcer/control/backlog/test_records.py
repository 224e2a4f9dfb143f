"""Reports, cut down."""

import pytest
from admin_backlog_kit import report
from each_kit import each

from enforcer.control.backlog.table import SubscriptionLag, report_of
from streaming.contract.errors import BadEvent

T = "persistent://acme/orders/t1"


def test_sizes_are_the_laws_own() -> None:
    """Whole ledgers, or less what is acknowledged; who has read all has nothing behind."""
    found = report_of(report(T, ("slow", -1), ("mid", 3), ("fast", 9)), "k1", 1_000)
    assert (found.topic, found.ts, found.storage) == (T, 1_000, 1_050)
    assert found.subscriptions == (
        SubscriptionLag("slow", True, 12, 1_050.0, 1_050.0, 499),
        SubscriptionLag("mid", True, 8, 1_050.0, 650.0, 503),
        SubscriptionLag("fast", True, 2, 50.0, 50.0, 509),
    )
    done = {"name": "done", "ledger": 2, "entry": 1, "oldestPublishTime": 5}
    found = report_of(report() | {"subscriptions": [done]}, "k1", 1_000)
    assert found.subscriptions == (SubscriptionLag("done", True, 0, 0.0, 0.0, 0),)


def test_nulls_of_packed_rows_are_absent() -> None:
    """In what a record nests too."""
    row = {"name": "s", "ledger": 1, "entry": 4, "durable": None, "oldestPublishTime": None}
    found = report_of(report() | {"subscriptions": [row]}, "k1", 1_000)
    assert found.subscriptions == (SubscriptionLag("s", True, 7, 1_050.0, 550.0, 0),)


@each("subscriptions", [None, 5, [5], [{"name": "s"}], [{"name": None}]])
def test_what_is_none_is_refused(subscriptions: object) -> None:
    """As the job does."""
    with pytest.raises(BadEvent):
        report_of(report() | {"subscriptions": subscriptions}, "k1", 1_000)
