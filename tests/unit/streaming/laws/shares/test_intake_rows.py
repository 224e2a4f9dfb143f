"""Reports as columns: whatever was parsed stands in them."""

from hypothesis import given
from hypothesis import strategies as st
from usage_kit import report_columns

from streaming.contract.fields import INT64_MAX
from streaming.contract.usage_events import GroupReport, GroupUsage
from streaming.laws.shares.intake import Reports
from streaming.laws.shares.report_rows import NOT_SAID

counts = st.tuples(*[st.sampled_from([0, 1, 600, INT64_MAX])] * 4)
times = st.tuples(*[st.sampled_from([None, 0, 20, INT64_MAX])] * 4)
usages = st.builds(GroupReport, counts=counts, throttled_ms=times)
events = st.builds(
    GroupUsage, id=st.just("e"), ts=st.integers(0, 9), at=st.integers(10, 19), period_ms=st.integers(1, 99),
    broker=st.sampled_from(["b1", "b2", "bé"]),
    usage=st.dictionaries(st.sampled_from(["", "rg1", "rg2", "quota/user=a"]), usages).map(
        lambda usage: tuple(usage.items())
    ),
)  # fmt: skip


def read_back(columns: Reports) -> list[tuple[int, int, GroupUsage]]:
    """(source, ticks before, event of one group) of each row."""
    names, brokers = columns.groups.to_pylist(), columns.brokers.to_pylist()
    assert len({*names}) == len(names) and len({*brokers}) == len(brokers)
    found = []
    for row in range(len(columns.at)):
        report = GroupReport(
            counts=tuple(columns.counts[row].tolist()),
            throttled_ms=tuple(None if t == NOT_SAID else t for t in columns.throttled_ms[row].tolist()),
        )
        event = GroupUsage(
            id="e", ts=int(columns.ts[row]), at=int(columns.at[row]), period_ms=int(columns.period_ms[row]),
            broker=brokers[columns.broker[row]], usage=((names[columns.group[row]], report),),
        )  # fmt: skip
        found.append((int(columns.source[row]), int(columns.ticks[row]), event))
    return found


@given(st.lists(events, max_size=6))
def test_what_was_put_stands_there(put: list[GroupUsage]) -> None:
    """A row per event and group, in order, with numbers at both ends of their range."""
    expected = [
        (source, source // 2, GroupUsage(
            id="e", ts=event.ts, at=event.at, broker=event.broker, period_ms=event.period_ms, usage=(usage,)
        ))
        for source, event in enumerate(put) for usage in event.usage
    ]  # fmt: skip
    before = [source // 2 for source in range(len(put))]
    assert read_back(report_columns(list(enumerate(put)), before)) == expected
