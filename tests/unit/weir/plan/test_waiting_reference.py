"""Clients that wait, by hand: one bucket, one loop, no columns."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from law_kit import T0, quota, records_of, request

from streaming.columns.outputs import Outputs
from streaming.laws.law import StepContext
from weir.plan.sides import Side
from weir.plan.verdicts import ALLOWED, REFUSED, THROTTLED
from weir.plan.waiting.queues import HELD_MAX_MS, TRIES

RATE, BURST = 0.01, 3.0
Sent = tuple[int, list[int], str, bool]
"""When, mutations of the items, whose client, whether it can be refused."""
SENT = st.tuples(
    st.integers(0, 3_000_000), st.lists(st.integers(0, 9), min_size=1, max_size=3), st.sampled_from("ab"),
    st.booleans(),
)  # fmt: skip


def by_hand(asked: list[Sent]) -> list[tuple[int, int]]:
    """Outcome and delay of each; what is asked comes in order of time."""
    queues: dict[str, list[int]] = {}
    for number, (_, _, client, _) in enumerate(asked):
        queues.setdefault(client, []).append(number)
    left, tries = [list(items) for _, items, _, _ in asked], [0] * len(asked)
    free, told = dict.fromkeys(queues, 0), [(ALLOWED, 0)] * len(asked)
    tokens, last = BURST, 0
    while any(queues.values()):
        firsts = {client: queue[0] for client, queue in queues.items() if queue}
        heads = [(max(asked[first][0], free[client]), first) for client, first in firsts.items()]
        now, number = min(heads)
        at, _, client, strict = asked[number]
        if now - at >= HELD_MAX_MS and tries[number] == 0:
            told[number] = REFUSED, HELD_MAX_MS
            queues[client].pop(0)
            continue
        tokens, last = min(BURST, tokens + RATE * ((now - last) / 1000.0)), now
        tries[number] += 1
        refused = []
        for item in left[number]:
            if strict and tokens < 0:
                refused.append(item)
            else:
                tokens -= item
        wait = max(1, int(-tokens / RATE * 1000.0 + 0.5)) if tokens < 0 and (refused or not strict) else 0
        free[client], left[number] = now + wait, refused
        if refused and tries[number] < TRIES and now + wait - at < HELD_MAX_MS:
            continue
        delay = now - at if refused else now + (0 if strict else wait) - at
        told[number] = (REFUSED if refused else THROTTLED if delay else ALLOWED), delay
        if strict and not refused:
            free[client] = now
        queues[client].pop(0)
    return told


@given(st.lists(SENT, min_size=1, max_size=25))
def test_it_is_what_a_loop_by_hand_says(asked: list[Sent]) -> None:
    """Of one bucket with two clients, both strict and older ones."""
    asked = sorted(asked, key=lambda sent: sent[0])
    events: list[dict[str, Any]] = [
        request(f"r{number}", at, *items, client_id=client, strict=strict)
        for number, (at, items, client, strict) in enumerate(asked)
    ]
    limits = {"quotas[user=alice]": quota(RATE, BURST)}
    context = StepContext(initial=limits, replay=True, fail_fast=True)
    side = Side(context)
    said = side.decide(side.replay.read(records_of(events), Outputs()))["mutation"].waiting
    assert said is not None
    assert said.ts.tolist() == [T0 + at for at, _, _, _ in asked]
    assert list(zip(said.outcome.tolist(), said.delay_ms.tolist(), strict=True)) == by_hand(asked)
