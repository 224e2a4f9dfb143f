"""What becomes of rows that are not needed: they rest, come back, leave, and no decision tells."""

import pyarrow as pa
import pytest
from blob_store_kit import MemoryBlobStore
from history_kit import INITIAL, histories, whole
from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, Event, Shard, policy, quota, request
from property_kit import tries

from streaming.contract.errors import StateError
from streaming.laws.mutation import table as mutation_table
from streaming.laws.mutation.limits import DEFAULTS, Quotas, quotas_of
from streaming.policy.policy_set import PolicySet, paths_of
from streaming.policy.timeline import PolicyTimeline
from streaming.state.body import decode
from streaming.state.cold_rows import ColdRows, Columns
from streaming.state.row_names import row_names

EVERYBODY = "quotas[user=<default>]"


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row rests between any two batches."""
    monkeypatch.setattr(mutation_table, "WARM_ROWS", 0)


def cold_rows(shard: Shard) -> int:
    """Rows that rest after the last batch."""
    return len(mutation_table.ColdRows(decode(shard.body or b"").notes.get("cold_rows"), shard.context.blobs))


@pytest.mark.parametrize("rests", [False, True])
@given(histories(), st.data())
@tries(150)
def test_batches_cut_anywhere_decide_as_one(rests: bool, events: list[Event], data: st.DataObject) -> None:
    """The state encoded and decoded between them, rows resting or not, idle subjects leaving the table."""
    expected = whole(events)
    # Live shards sweep and trust what proxies stamped; here nothing is stamped, so both resolve alike.
    live = Shard(INITIAL, replay=False, blobs=MemoryBlobStore() if rests else None)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(events)), max_size=6)))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutation_table, "WARM_ROWS", 0)
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            found += live.step(events[start:end])
    assert expected == found


@pytest.mark.usefixtures("restless")
def test_a_batch_that_is_run_again_says_the_same() -> None:
    """From the state of any batch that may be asked for again, whatever later ones laid down."""
    shard = Shard({EVERYBODY: quota(0.1, 50)}, replay=False, blobs=MemoryBlobStore(batches_kept=5))
    batches = [
        [request(f"e{n}-{u}", n * 9000 + u, u % 5 + 1, user=f"u{u}") for u in range(n % 4, 40, 1 + n % 3)]
        for n in range(12)
    ]
    before: list[tuple[bytes | None, int]] = []
    said = []
    for events in batches:
        before.append((shard.body, shard.offset))
        said.append(shard.step(events))
    for number in range(12 - 5, 12):
        again = Shard(dict(shard.context.initial), replay=False, blobs=shard.context.blobs)
        again.body, again.offset = before[number]
        assert again.step(batches[number]) == said[number]


@pytest.mark.usefixtures("restless")
def test_resting_subjects_leave_when_they_say_nothing() -> None:
    """A full bucket with empty windows goes; a debt stays however long nobody asks."""
    shard = Shard({EVERYBODY: quota(10), "quotas[user=debtor]": quota(0.001, 1)}, replay=False,
                  blobs=MemoryBlobStore())  # fmt: skip
    shard.step([request(f"e{n}", n, 1, user=f"user-{n}") for n in range(2000)])
    shard.step([request("debt", 2001, 500, user="debtor")])
    assert cold_rows(shard) == 2001
    shard.step([request("late", 400_000, 1)])
    assert cold_rows(shard) == 2
    (decision,) = shard.step([request("again", 400_001, 1, user="debtor")])
    assert decision["outcome"] == "reject"


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("path", ["quotas[user=bob]", "quotas[user=bob,client-id=<default>]", EVERYBODY])
def test_a_change_of_policy_is_settled_for_resting_rows_before_it_is_forgotten(path: str) -> None:
    """Full at a change means full after it, although the row was read long after the change was forgotten."""
    shard = Shard({path: quota(1, 100)}, replay=False, blobs=MemoryBlobStore())
    shard.step([request("a", 0, 50, user="bob"), request("b", 0, 90, user="carol")])
    # Full at 50 s. Then a larger bucket, and then one that would never have been full again.
    shard.step([policy(60_000, path, quota(1, 1_000_000)), policy(61_000, path, quota(0.000_001, 2_000_000))])
    shard.step([request("sweep", 500_000, 1, user="dave")])
    notes = decode(shard.body or b"").notes
    assert b"1000000.0" not in notes["policies"] + notes["changes"], "forgotten"
    (decision,) = shard.step([request("c", 500_001, 1, user="bob")])
    assert decision["tokens"] == 1_999_999.0


@pytest.fixture
def laid(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were laid to rest each time."""
    add, counts = ColdRows.add, list[int]()

    def counted(self: ColdRows, columns: Columns) -> None:
        counts.append(len(columns["subject"]))
        add(self, columns)

    monkeypatch.setattr(ColdRows, "add", counted)
    return counts


@pytest.mark.usefixtures("restless")
def test_a_change_for_the_clients_of_one_user_moves_no_row_of_others(
    laid: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each minute with such a change all that rests was written anew."""
    monkeypatch.setattr(ColdRows, "rewrite", lambda *_: pytest.fail("all is written anew"))
    everybody = "quotas[user=<default>,client-id=<default>]"
    shard = Shard({everybody: quota(0.001, 1000)}, replay=False, blobs=MemoryBlobStore())
    shard.step([request(f"{user} asks", 0, 500, user=user) for user in ("alice", "bob", "carol")])
    shard.step([policy(1000, "quotas[user=alice,client-id=<default>]", quota(1, 2000))])
    shard.step([request("sweep", 400_000, 1, user="dave")])
    assert laid == [3, 2] and cold_rows(shard) == 4


@pytest.mark.usefixtures("restless")
def test_only_rows_that_are_said_again_are_taken_out(laid: list[int]) -> None:
    """Copies that a row left behind, as old as they are, do not have it moved at each look."""
    shard = Shard({EVERYBODY: quota(0.001, 1)}, replay=False, blobs=MemoryBlobStore())
    debtors, said = [f"u{number}" for number in range(40)], list[Event]()
    for at_ms, users in ((0, debtors), (25_000, debtors[:15]), (31_000, ["new"])):
        events = [request(f"{user} at {at_ms}", at_ms, 500, user=user) for user in users]
        said = shard.step(events, processed_ts=T0 + at_ms)
    assert laid == [40, 15, 26]
    assert sum("repeat" in each for each in said) == 25


def test_changes_of_others_quotas_cost_a_row_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of a hundred thousand entries takes a tenth of a second, in every shard, batch and sweep."""
    shard = Shard({EVERYBODY: quota(0.1, 1)}, replay=False)
    shard.step([request(f"{user} asks", 0, 500, user=user) for user in ("alice", "bob")])
    paths = ("user=u", "client-id=c", "user=u,client-id=c", "user=u,client-id=<default>",
             "user=<default>,client-id=c", "user=carol,client-id=<default>")  # fmt: skip
    shard.step([policy(1000 + n, f"quotas[{path}]", quota(1)) for n, path in enumerate(paths)])
    made = list[PolicySet]()

    def counted(policies: PolicySet) -> Quotas:
        made.append(policies)
        return quotas_of(policies)

    monkeypatch.setattr(mutation_table, "quotas_of", counted)
    (again,) = shard.step([request("again", 20_000, 1)])
    assert again["tokens"] == -497.0 and len(made) == 1
    # Bob's row is there and older than all of them; theirs are forgotten by the sweep.
    (last,) = shard.step([request("last", 400_000, 1)])
    assert last["tokens"] == -459.0 and len(made) == 3


def test_no_change_is_passed_over_that_concerns_a_row() -> None:
    """Each form of entry alone, set and removed, against the rows whose quota it is; of others some are."""
    people = ("user=a", "user=b", "client-id=c", "client-id=d", "user=a,client-id=c", "user=b,client-id=d",
              f"user={'x' * 300},client-id=c")  # fmt: skip
    half = ("user=a,client-id=<default>", f"user={'x' * 300},client-id=<default>",
            "user=<default>,client-id=c")  # fmt: skip
    timeline = PolicyTimeline()
    for number, entry in enumerate((*people, *half, *DEFAULTS)):
        for ts, value in enumerate((quota(5), None), start=2 * number + 1):
            timeline.apply(f"quotas[{entry}]", value, ts)
    changes = timeline.changed(-1, 100)
    for subject in people:
        row = row_names(pa.array([subject]))
        limited = [quotas_of(timeline.at(ts)).of(row)[0] for ts in range(len(changes) + 1)]
        concern = {ts for ts in range(1, len(limited)) if limited[ts] != limited[ts - 1]}
        times = set(mutation_table._times_for(row, changes))
        assert concern <= times < {ts for ts, _ in changes}
        assert times == {ts for ts, path in changes if path in paths_of(subject)}, "as enforcers settle"


@pytest.mark.usefixtures("restless")
def test_what_cannot_be_read_ends_the_query() -> None:
    """No law may decide without its state, so it is not taken for a bug in the law, which is only buried."""
    blobs = MemoryBlobStore()
    shard = Shard(INITIAL, replay=False, fail_fast=False, blobs=blobs)
    shard.step([request("a", 0, 5)])
    blobs.contents = {name: b"damaged" for name in blobs.contents}
    with pytest.raises(StateError, match="damaged"):
        shard.step([request("b", 1, 5)])


def test_few_rows_stay_in_the_body() -> None:
    """At a low rate no segment is written each batch."""
    blobs = MemoryBlobStore()
    shard = Shard(INITIAL, replay=False, blobs=blobs)
    shard.step([request("a", 0, 5)])
    assert cold_rows(shard) == 0 and not blobs.contents
