"""Long names: rows hold their digests, and no decision tells."""

import re

import pyarrow as pa
import pytest
from blob_store_kit import MemoryBlobStore
from history_kit import INITIAL, histories, whole
from hypothesis import given
from hypothesis import strategies as st
from law_kit import Event, Shard, policy, quota, request
from property_kit import tries

from streaming.contract.names import subject_of
from streaming.laws.mutation import table as mutation_table
from streaming.state.body import decode
from streaming.state.row_names import NAME_BYTES, row_name, row_names

EVERYBODY = "quotas[user=<default>,client-id=<default>]"
TAIL = "\u00e9" * 1_000  # policies take names of 1,024 characters
NAMES = st.text(st.sampled_from("ab,%=<\u00e9 "), max_size=6)


def longer(text: str) -> str:
    """Subjects and paths with every name but <default> made 2 kB long."""
    return re.sub(r"(user=|client-id=)(\w+)", lambda found: f"{found[1]}{found[2]}{TAIL}", text)


def longer_event(event: Event) -> Event:
    """An event by the same people under long names."""
    changed = dict(event)
    for key in ("user", "client_id"):
        if key in event:
            changed[key] = event[key] + TAIL
    if "path" in event:
        changed["path"] = longer(event["path"])
    return changed


@given(histories(), st.booleans(), st.data())
@tries(40)
def test_long_names_are_decided_as_short_ones(events: list[Event], rests: bool, data: st.DataObject) -> None:
    """Any history, cut anywhere, rows resting or not: the same decisions about longer subjects."""
    expected = [{**decision, "subject": longer(decision["subject"])} for decision in whole(events)]
    live = Shard(
        {longer(path): value for path, value in INITIAL.items()},
        replay=False,
        blobs=MemoryBlobStore() if rests else None,
    )
    cut = data.draw(st.integers(0, len(events)))
    long = [longer_event(event) for event in events]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutation_table, "WARM_ROWS", 0)
        found = live.step(long[:cut]) + live.step(long[cut:])
    assert found == expected


def test_a_long_name_costs_a_row_of_some_hundred_bytes() -> None:
    """300 client-ids of 10 kB: 3 MB of names said in decisions, none of them in the state."""
    shard = Shard({EVERYBODY: quota(5)}, replay=False)
    names = [f"{number}-{'c' * 10_000}" for number in range(300)]
    said = shard.step([request(f"e{n}", n, 20, client_id=name) for n, name in enumerate(names)])
    assert [each["subject"] for each in said] == [f"user=alice,client-id={name}" for name in names]
    assert len(decode(shard.body or b"").columns["subject"]) == 300
    assert len(shard.body or b"") < 300 * 400
    # And the row is found again.
    (again,) = shard.step([request("again", 300, 60, client_id=names[7])])
    assert again["tokens"] < -20


def test_a_limit_of_a_long_name_alone_is_found() -> None:
    """The most particular entry wins, also for a row that is settled after a change and by a sweep."""
    name = "u" * 300
    shard = Shard({"quotas[user=<default>]": quota(1), f"quotas[user={name}]": quota(7)}, replay=False)
    (first,) = shard.step([request("first", 0, 3, user=name)])
    shard.step([policy(10, f"quotas[user={name}]", quota(9))])
    (second,) = shard.step([request("second", 70_000, 3, user=name)])
    shard.step([{"type": "tick", "ts": request("t", 900_000)["ts"]}])
    (third,) = shard.step([request("third", 900_001, 3, user=name)])
    assert [each["limit"] for each in (first, second, third)] == [7.0, 9.0, 9.0]


@given(st.lists(st.tuples(st.none() | NAMES, st.none() | NAMES, st.integers(0, 2), st.integers(0, 2))))
def test_names_of_rows_are_nobody_elses(people: list[tuple[str | None, str | None, int, int]]) -> None:
    """Different subjects have different rows; those with short names their own; none is too long."""
    long = ["", "x" * 200, "\u00e9" * 300]
    subjects = [
        subject_of(user and user + long[first], client and client + long[second])
        for user, client, first, second in people
    ]
    rows = row_names(pa.array(subjects, pa.string())).to_pylist()
    assert rows == [row_name(subject) for subject in subjects]
    assert len(set(rows)) == len(set(subjects))
    for subject, row in zip(subjects, rows, strict=True):
        parts = [part.partition("=")[2] for part in subject.split(",")]
        if all(len(part.encode()) <= NAME_BYTES for part in parts):
            assert row == subject
        assert len(row.encode()) <= len("user=,client-id=") + 2 * (NAME_BYTES + 1)
