"""Any history of the mutation law, for properties."""

from typing import Any

from hypothesis import strategies as st
from law_kit import Event, Shard, policy, quota, refund, request

USERS = ["alice", "bob", "carol"]
QUOTAS = st.sampled_from(
    [
        quota(1), quota(0.3, 2), quota(50, 10), quota(5, 40, algorithm="sampled_rate"),
        quota(2, 2, algorithm="sampled_rate"),
    ]
)  # fmt: skip
PATHS = [f"quotas[user={user}]" for user in USERS] + [
    "quotas[user=<default>]",
    "quotas[user=alice,client-id=x]",
]
GAPS = st.sampled_from([0, 1, 7, 400, 999, 1000, 12_000, 70_000, 400_000])


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Requests, refunds and changes of policy in order of time."""
    events: list[Event] = []
    now = 0
    for number in range(draw(st.integers(1, 25))):
        now += draw(GAPS)
        user = draw(st.sampled_from(USERS))
        kind = draw(st.sampled_from(["request"] * 6 + ["refund", "policy"]))
        if kind == "policy":
            events.append(policy(now, draw(st.sampled_from(PATHS)), draw(st.none() | QUOTAS)))
        elif kind == "refund":
            events.append(refund(now, max(0, now - draw(GAPS)), draw(st.integers(0, 30)), user))
        else:
            counts = draw(st.lists(st.integers(0, 30), max_size=3))
            flags = {name: True for name in draw(st.sets(st.sampled_from(["validate_only"])))}
            client_id = draw(st.sampled_from(["x", "y"]))
            strict = draw(st.booleans())
            events.append(
                request(f"e{number}", now, *counts, user=user, client_id=client_id, strict=strict, **flags)
            )
    # A live change is published two seconds before it takes effect, so it is never read after its time.
    return sorted(events, key=lambda event: (event["ts"], event["type"] != "policy"))


INITIAL: dict[str, Any] = {PATHS[0]: quota(1, 20), PATHS[3]: quota(2, 10, algorithm="sampled_rate")}


def whole(events: list[Event]) -> list[dict[str, Any]]:
    """Decisions of all events in one batch."""
    return Shard(INITIAL).step(events)
