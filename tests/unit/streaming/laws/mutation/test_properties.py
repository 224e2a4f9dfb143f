"""Properties of the mutation law, for any events: bounds, and what must never change a decision."""

from history_kit import GAPS, INITIAL, PATHS, histories, whole
from hypothesis import given
from hypothesis import strategies as st
from law_kit import Event, Shard, policy, quota, request
from property_kit import tries

from streaming.laws.name_hashes import shard_of


@given(histories(), st.integers(2, 7))
@tries(60)
def test_sharding_in_any_number_changes_nothing(events: list[Event], shards: int) -> None:
    """A subject's decisions depend on its own events and on the policies, on nobody else."""
    expected = whole(events)
    routing_key = {d["id"]: d["subject"] or "user=" for d in expected}
    found = []
    for number in range(shards):
        # A refund belongs where its user's requests are; every shard may see those of others without harm.
        own = [
            e for e in events if e["type"] != "request" or shard_of(routing_key[e["id"]], shards) == number
        ]
        found += Shard(INITIAL).step(own)
    assert sorted(expected, key=lambda d: d["id"]) == sorted(found, key=lambda d: d["id"])


@given(
    st.lists(
        st.tuples(GAPS, st.lists(st.integers(0, 40), min_size=1, max_size=3), st.booleans()), max_size=30
    ),
    st.sampled_from([(1.0, 11.0), (0.25, 10.0), (33.3, 5.0)]),
)
@tries(100)
def test_a_bucket_never_admits_more_than_limit_times_time_plus_burst(
    series: list[tuple[int, list[int], bool]], limits: tuple[float, float]
) -> None:
    """Before the last strictly admitted item: an item may overdraw, but nothing is admitted in debt."""
    rate, burst = limits
    now, events = 0, []
    for number, (gap, counts, _) in enumerate(series):
        now += gap
        events.append(request(f"e{number}", now, *counts))
    decisions = Shard({PATHS[0]: quota(rate, burst)}).step(events)
    charged = 0
    for event, decision in zip(events, decisions, strict=True):
        for item in event["items"]:
            if item["name"] not in decision["rejected"]:
                allowed = burst + rate * (event["ts"] - events[0]["ts"]) / 1000
                assert charged <= allowed + 1e-6
                charged += item["mutations"]


@given(histories())
@tries(50)
def test_a_wait_is_enough_and_not_too_long(events: list[Event]) -> None:
    """After the told time a bucket admits; one millisecond of rounding before it does not."""
    shard = Shard(INITIAL)
    for decision in shard.step(events):
        if decision["outcome"] == "reject" and decision["algorithm"] == "token_bucket":
            wait_s = decision["throttle_time_ms"] / 1000
            assert decision["tokens"] + decision["limit"] * (wait_s + 0.0005) >= -1e-9
            before = decision["tokens"] + decision["limit"] * (wait_s - 0.0011)
            assert decision["throttle_time_ms"] == 1 or before < 0


def test_idle_subjects_leave_the_table() -> None:
    """A full bucket with empty windows says nothing: the state does not grow with subjects long gone."""
    shard = Shard({"quotas[user=<default>]": quota(10)}, replay=False)
    shard.step([request(f"e{n}", n, 1, user=f"user-{n}") for n in range(2000)])
    crowded = len(shard.body or b"")
    shard.step([request("late", 400_000, 1)])
    assert crowded > 20_000
    assert len(shard.body or b"") < 3_000


def test_policies_are_kept_for_stragglers_and_then_forgotten() -> None:
    """An event from another partition, older than a change already taken, is judged by its own time."""
    shard = Shard({}, replay=False)
    shard.step([policy(1000, PATHS[0], quota(1)), request("a", 5000, 1)])
    (decision,) = shard.step([request("b", 999, 1, user="bob")])
    assert decision["subject"] == ""
    (decision,) = shard.step([policy(2000, PATHS[1], quota(1)), request("c", 1500, 1, user="bob")])
    assert decision["subject"] == ""
    (decision,) = shard.step([request("d", 2000, 1, user="bob")])
    assert decision["subject"] == "user=bob"


def test_bad_policies_and_foreign_subjects_are_dead_letters() -> None:
    """A policy event is checked like a file; a subject must be in its canonical form."""
    shard = Shard(INITIAL, replay=False)
    wrong = policy(0, "quotas[user=alice]", {"controller_mutation_rate": 0})
    odd = request("a", 0, 1, subject="client-id=x,user=alice")
    assert shard.step([wrong, odd, policy(0, "nonsense", None)]) == []
    assert len(shard.dead_letters) == 3
