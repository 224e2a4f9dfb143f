"""Signs of life, and what proxies have decided, as they are read."""

from typing import Any

import pyarrow as pa
from each_kit import each
from message_kit import Record
from pack_kit import packed

from enforcer.core.feeds.peers import Charge, Sign, charges_in, signs_in
from streaming.columns.packed import pack

REQUEST = {
    "type": "request", "id": "p1-1", "ts": 5_000, "proxy": "p1", "user": "a", "subject": "user=a",
    "items": [{"name": "x", "mutations": 3}, {"name": "y", "mutations": 4}],
    "decided": {"outcome": "reject", "rejected": ["y"], "throttle_time_ms": 7, "tokens": -1.0},
}  # fmt: skip
ALLOWED = {"outcome": "allow", "rejected": [], "throttle_time_ms": 0, "tokens": 1.0}


def test_signs_of_life() -> None:
    """By their records' times; other events and damaged ones are none."""
    sign = {"type": "alive", "id": "a", "proxy": "p2"}
    assert signs_in(Record(sign)) == [Sign("p2", 5_100, False)]  # type: ignore[arg-type]
    assert signs_in(Record({**sign, "leaving": True})) == [Sign("p2", 5_100, True)]  # type: ignore[arg-type]
    told = {**sign, "speaks": "kafka", "instance": "f00d"}
    assert signs_in(Record(told)) == [Sign("p2", 5_100, False, "kafka", "f00d")]  # type: ignore[arg-type]
    for other in (b"", b'"alive"', {**sign, "proxy": 7}, {**sign, "type": "tick"}, {"x": "alive" * 1_000}):
        assert signs_in(Record(other)) == []  # type: ignore[arg-type]


@each(
    ("changed", "expected"),
    [
        ({}, [Charge("user=a", "p1-1", 5_000, (3,), False)]),
        ({"validate_only": True, "decided": ALLOWED}, [Charge("user=a", "p1-1", 5_000, (), False)]),
        ({"ts": 6_101}, [Charge("user=a", "p1-1", 5_100, (3,), False)]),
        ({"type": "refund", "of": "p1-0", "of_ts": 1}, [Charge("user=a", "p1-1", 5_000, (7,), True)]),
        ({"subject": ""}, []),
        ({"decided": {"outcome": "allow"}}, []),
        ({"type": "other"}, []),
    ],
)  # fmt: skip
def test_charges(changed: dict[str, Any], expected: list[Charge]) -> None:
    """What was decided is charged but for what was rejected; a clock that leads is the record's."""
    assert charges_in(Record({**REQUEST, **changed})) == expected  # type: ignore[arg-type]


def test_what_names_itself_not_is_called_as_the_job_calls_it() -> None:
    """Else its admission would not be known for its own, and it would be charged once more."""
    unnamed = {name: value for name, value in REQUEST.items() if name != "id"}
    (value,) = packed([unnamed, unnamed])
    records: Any = Record(unnamed), Record(value, packed=True)
    called = [charge.id for record in records for charge in charges_in(record)]
    assert called == ["weir.requests-1-1", "weir.requests-1-1/0", "weir.requests-1-1/1"]


def test_a_question_is_no_charge() -> None:
    """The job decides it."""
    asked = {name: value for name, value in REQUEST.items() if name != "decided"}
    assert charges_in(Record(asked)) == []  # type: ignore[arg-type]


def test_a_packed_request_that_is_no_json_object_ends_no_reader() -> None:
    """The job says so, in a dead letter; a proxy that reads back would wait for its reader for ever."""
    items = pa.StructArray.from_arrays([pa.array(["x"]), pa.array(["x"])], ["name", "name"])
    fields = {name: [value] for name, value in REQUEST.items() if name not in ("type", "items", "decided")}
    rows = pa.RecordBatch.from_pydict(fields).append_column("items", pa.ListArray.from_arrays([0, 1], items))
    (value,) = pack("request", rows)
    assert charges_in(Record(value, packed=True)) == []  # type: ignore[arg-type]
