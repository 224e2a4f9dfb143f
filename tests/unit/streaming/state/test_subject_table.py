"""The subject table against a dictionary of rows."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_kit import tries
from usage_kit import reloaded

from streaming.state.subject_table import SubjectTable

NAMES = st.lists(st.sampled_from("abcdefgh") | st.text(max_size=2), unique=True, max_size=5)
NUMBERS = st.sampled_from([0.0, -0.0, 1.5, float("inf")])


class Table(SubjectTable):
    """Every kind of field."""

    dtype = np.dtype(
        [
            ("last", np.int64), ("flag", np.bool_), ("code", np.int8), ("pair", np.float64, 2),
            ("many", np.float64, 5),
        ]
    )  # fmt: skip
    sparse = frozenset({"many"})


def row_of(data: st.DataObject) -> dict[str, Any]:
    """Any values of the fields."""
    return {
        "last": data.draw(st.integers(-(2**63), 2**63 - 1)),
        "flag": data.draw(st.booleans()),
        "code": data.draw(st.integers(-128, 127)),
        "pair": data.draw(st.tuples(NUMBERS, NUMBERS)),
        "many": data.draw(st.lists(NUMBERS, min_size=5, max_size=5)),
    }


@given(st.lists(st.sampled_from(["add", "keep", "reload", "find"]), max_size=8), st.data())
@tries(150)
def test_a_table_is_its_rows_by_name(steps: list[str], data: st.DataObject) -> None:
    """Rows added, left out, written and read back in any order: exactly those of a dictionary."""
    table, expected = Table(), dict[str, bytes]()
    for step in steps:
        names = pa.array(data.draw(NAMES), pa.string())
        if step == "add":
            fresh = names.filter(pa.array(table.rows(names) < 0))
            rows = [row_of(data) for _ in range(len(fresh))]
            fields = {name: [row[name] for row in rows] for name in Table.dtype.names or ()}
            added = table.add(fresh, **(fields if rows else {}))
            assert added.tolist() == list(range(len(expected), len(table)))
            written = [table.state[row].tobytes() for row in added]
            expected |= dict(zip(fresh.to_pylist(), written, strict=True))
        elif step == "keep":
            which = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)))
            table.keep(np.array(which, dtype=np.bool_))
            expected = {name: row for keep, (name, row) in zip(which, expected.items(), strict=True) if keep}
        elif step == "reload":
            table = reloaded(table)
        else:
            found = [None if row < 0 else table.state[row].tobytes() for row in table.rows(names)]
            assert found == [expected.get(name) for name in names.to_pylist()]
        assert len(table) == len(table.names) == len(table.state)
        found = (row.tobytes() for row in table.state)
        assert dict(zip(table.names.to_pylist(), found, strict=True)) == expected


@given(NAMES, st.integers(0, 6), st.data())
@tries(80)
def test_the_oldest_leave_first(names: list[str], most: int, data: st.DataObject) -> None:
    """Ties by name."""
    table = Table()
    last = data.draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names)))
    table.add(pa.array(names, pa.string()), last=last)
    table.bound(most)
    by_age = sorted(zip(last, names, strict=True))
    assert set(table.names.to_pylist()) == {name for _, name in by_age[max(0, len(names) - most) :]}


def test_who_is_needed_leaves_last_and_no_more_than_it_takes_are_asked() -> None:
    """Of any share of rows that are needed."""
    for count, surplus, stay in ((40, 3, 0), (40, 3, 5), (40, 3, 38), (40, 3, 40), (4, 4, 2)):
        table, asked = Table(), list[int]()
        table.add(pa.array([f"{name:02}" for name in range(count)]), last=list(range(count)))

        def needed(some: NDArray[np.int64], stay: int = stay, asked: list[int] = asked) -> NDArray[np.bool_]:
            asked.extend(some)
            return np.asarray(some < stay)

        table.bound(count - surplus, needed)
        leave = [*range(stay, count), *range(stay)][:surplus]
        assert set(table.names.to_pylist()) == {f"{name:02}" for name in range(count) if name not in leave}
        assert asked == list(range(len(asked))) and len(asked) <= 4 * (surplus + stay)


def test_what_was_read_can_be_changed() -> None:
    """The bytes of a body cannot."""
    table = Table()
    table.add(pa.array(["a"]), last=[3], pair=[(1.0, 2.0)], many=[[0.0, 0.0, 5.0, 0.0, 0.0]])
    again = reloaded(table)
    again.state["last"][0] = 4
    assert (table.state["last"].tolist(), again.state["last"].tolist()) == ([3], [4])
    assert again.columns()["many"].to_pylist() == [[{"slot": 2, "value": 5.0}]]
