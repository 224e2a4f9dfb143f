"""Reports of many groups as packed records: they say what the JSON of the same use says."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from meter_kit import Desk, publish
from property_kit import tries

from enforcer.core.account import Use
from enforcer.laws.shares.usage import _entry, packed_reports
from streaming.columns.json_rows import objects
from streaming.columns.packed import unpack
from streaming.contract.fields import INT64_MAX

HEAD: dict[str, Any] = {"id": "p1-usage-1", "broker": "p1", "period_ms": 60_000}
COUNTS = st.sampled_from([0, 1, 255, 256, 70_000, 5_000_000_000, INT64_MAX])
USES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.builds(Use, st.tuples(*[COUNTS] * 4), st.tuples(*[st.none() | COUNTS] * 4)),
    min_size=1, max_size=30,
)  # fmt: skip


def reports(values: list[bytes]) -> list[dict[str, Any]]:
    """What packed records say."""
    return [orjson.loads(row) for value in values for row in objects(*unpack(value)).to_pylist()]


@given(USES, st.sampled_from([1, 3_000, 900_000]))
@tries(200)
def test_packed_as_json(uses: dict[str, Use], most: int) -> None:
    """Byte for byte but for the id of a part; cut, all groups are there once and in order."""
    found = list(packed_reports(HEAD, uses, most))
    told = reports([value for _, value in found])
    assert [list(report["usage"]) for report in told] == [list(groups) for groups, _ in found]
    assert len({report["id"] for report in told}) == len(told)
    assert all(len(value) <= most or len(groups) == 1 for groups, value in found)
    together = {group: entry for report in told for group, entry in report["usage"].items()}
    as_json = {"type": "group_usage", **HEAD, "usage": {group: _entry(use) for group, use in uses.items()}}
    whole = {**told[0], "id": HEAD["id"], "usage": together}
    assert orjson.dumps(whole) == orjson.dumps(as_json)


def desk_with(groups: int) -> Desk:
    """A proxy with so many groups in use."""
    policies: dict[str, Any] = {f"resourcegroups.g{n}": {"publishRateInMsgs": 9_000} for n in range(groups)}
    policies |= {f"namespaces.acme/n{n}": {"resourcegroup": f"g{n}"} for n in range(groups)}
    desk = Desk(policies)
    for number in range(groups):
        publish(desk, 1 + number, 10, f"acme.n{number}.t")
    desk.now_ms += 1_000
    return desk


def test_many_groups_are_packed_few_are_not() -> None:
    """From proxy.pack_min on; what was dropped is told again in the next round."""
    few, many = desk_with(15), desk_with(16)
    few.reports.report()
    many.full = True
    many.reports.report()
    many.full = False
    many.now_ms += 1_000
    for number in range(16):
        publish(many, 1 + number, 10, f"acme.n{number}.t")
    many.reports.report()
    assert (len(few.packs), len(many.packs)) == (0, 1)
    for desk, count in ((few, 15), (many, 16)):
        (event,) = desk.events
        assert list(event["usage"]) == [f"g{number}" for number in range(count)]
        assert {name: use["publishedMsg"] for name, use in event["usage"].items()} == {
            f"g{number}": number + 1 for number in range(count)
        }
    assert many.reports.reported["g3"] == 1
