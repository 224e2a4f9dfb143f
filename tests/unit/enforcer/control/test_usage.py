"""What `GET .../{rg}/usage` is made of."""

from typing import Any

from admin_api_kit import report
from entity_kit import share

from enforcer.control.usage import UsageTable
from streaming.contract.decisions import share_of
from streaming.policy.groups import GroupLimits, RoundRules

LIMITS = GroupLimits(rates=(100.0, None, None, None), shadow=False)
RULES = RoundRules(interval_ms=1_000, expiry_rounds=5)


def put_share(table: UsageTable, ts: int, **fields: Any) -> None:
    """Let the table read one."""
    table.take_share(share_of({**share(5_000, "b1", 60.0), "ttl_ms": 3_000, **fields}), ts)


def test_members_have_use_share_and_throttled_time() -> None:
    """Rates per second; sums over the members; throttled time of the last report and since the start."""
    table = UsageTable(10)
    table.take_report(report("b1", 3_000, 20, throttled=50))
    table.take_report(report("b1", 5_000, 40, throttled=100))
    table.take_report(report("b2", 5_000, 10))
    put_share(table, 5_100)
    put_share(table, 5_100, broker="b2", limits={"publishRateInMsgs": 40.0})
    view = table.view("rg1", LIMITS, RULES, 6_000)
    assert (view["limits"]["publishRateInMsgs"], view["limits"]["publishRateInBytes"]) == (100.0, -1)
    assert (view["round_ms"], view["shadow"]) == (1_000, False)
    assert view["usage"]["publishRateInMsgs"] == 25.0
    assert view["share"] == {"publishRateInMsgs": 100.0}
    first, second = view["members"]
    assert (first["broker"], second["broker"]) == ("b1", "b2")
    assert first["usage"]["publishRateInMsgs"] == 20.0
    assert (first["share"], first["share_ts"]) == ({"publishRateInMsgs": 60.0}, 5_000)
    assert first["throttledMs"]["publishRateInMsgs"] == 100
    assert first["throttledTotalMs"]["publishRateInMsgs"] == 150
    assert (first["period_ms"], first["reported_ts"]) == (2_000, 5_000)


def test_members_leave_with_their_report_and_share() -> None:
    """A share ends with its life time, a report is too old after the rounds that the policies allow."""
    table = UsageTable(10)
    table.take_report(report("b1", 5_000, 40))
    put_share(table, 5_000)
    assert table.view("rg1", LIMITS, RULES, 7_999)["members"][0]["share"] is not None
    assert table.view("rg1", LIMITS, RULES, 8_000)["members"][0]["share"] is None
    assert len(table.view("rg1", LIMITS, RULES, 11_000)["members"]) == 1
    assert table.view("rg1", LIMITS, RULES, 11_001)["members"] == []
    put_share(table, 12_000)
    assert len(table.view("rg1", LIMITS, RULES, 12_000)["members"]) == 1
    put_share(table, 12_000, limits=None, removed="idle")
    assert table.view("rg1", LIMITS, RULES, 12_000)["members"] == []


def test_stale_reports_and_groups_of_quotas_are_left_out() -> None:
    """As in the job; quotas have no page here."""
    table = UsageTable(10)
    table.take_report(report("b1", 5_000, 40))
    table.take_report(report("b1", 4_000, 2))
    table.take_report(report("b1", 5_000, 2, group="quota/user=a"))
    put_share(table, 5_000, group="quota/user=a")
    assert table.view("rg1", LIMITS, RULES, 5_000)["usage"]["publishRateInMsgs"] == 20.0
    assert len(table.rows) == 1


def test_the_table_is_bounded() -> None:
    """Who was silent longest goes first and is counted."""
    table = UsageTable(3)
    for broker in ("b1", "b2", "b3"):
        table.take_report(report(broker, 5_000, 2))
    table.take_report(report("b1", 5_001, 2))
    table.take_report(report("b4", 5_001, 2, group="rg2"))
    assert (len(table.rows), table.rows.dropped) == (3, 1)
    assert [m["broker"] for m in table.view("rg1", LIMITS, RULES, 5_001)["members"]] == ["b1", "b3"]
    for number in range(3):
        table.take_report(report(f"c{number}", 5_002, 2, group="rg3"))
    assert table.view("rg1", LIMITS, RULES, 5_002)["members"] == []
    assert (len(table.rows), table.rows.dropped) == (3, 4)
