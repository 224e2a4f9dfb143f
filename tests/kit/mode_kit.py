"""A log of all five laws, in which a raise ends by itself and the mode goes from one to the next."""

from typing import Any

import orjson
from event_kit import TOPIC, backlog, delivery, ledger, report, sample, subscription
from law_kit import policy, request

from streaming.policy.policy_set import Mode

STRETCH_MS = 4_000
"""One with the raise, one without, then one of each mode."""
STRETCHES = ("raised", "enforce", "track", "off", "enforced again")
POLICIES = f"""\
version: 1
quotas:
  - entity: {{user: alice}}
    controller_mutation_rate: 1
    controller_mutation_burst: 1
    raise: {{controller_mutation_burst: 1000, until: 2026-11-20T10:25:04+01:00}}
resourcegroups:
  rg1: {{publishRateInMsgs: 10, raise: {{publishRateInMsgs: 30, until: 2026-11-20T09:25:04Z}}}}
topics:
  {TOPIC}:
    dispatchRate: {{dispatchThrottlingRateInMsg: 10}}
    backlogQuotaMap: {{destination_storage: {{limitSize: 100, policy: producer_exception}}}}
    raise:
      until: 2026-11-20T09:25:04Z
      dispatchRate: {{dispatchThrottlingRateInMsg: 100}}
      backlogQuotaMap: {{destination_storage: {{limitSize: 1000, policy: producer_exception}}}}
broker: {{resourceUsagePublishIntervalInSecs: 1}}
backpressure:
  partitions:
    p: {{algorithm: fixed, fixed: {{limit: 3}}, raise: {{fixed: {{limit: 7}}, until: 2026-11-20T09:25:04Z}}}}
"""


def events() -> list[dict[str, Any]]:
    """One of each law in the middle of each stretch, and the changes of mode between them."""
    modes = (Mode.TRACK, Mode.OFF, Mode.ENFORCE)
    return [
        *(policy((2 + number) * STRETCH_MS, "mode", mode.value) for number, mode in enumerate(modes)),
        *(each for number, name in enumerate(STRETCHES) for each in _each(name, number * STRETCH_MS + 2_000)),
    ]


def lines() -> bytes:
    """The same as a file."""
    return b"\n".join(map(orjson.dumps, events()))


def _each(name: str, at_ms: int) -> list[dict[str, Any]]:
    return [
        # Of two items the second finds the balance below 0, but in the raise.
        request(name, at_ms, 50, 50, strict=True),
        report(at_ms, "b", {"rg1": {"publishedMsg": 5}}, id=name),
        delivery(at_ms, 15, 1, 1, id=name),
        sample(name, at_ms, 1, 1, partition="p"),
        backlog([ledger(1, 10, 500)], subscription("s", 1, -1), at_ms=at_ms) | {"id": name},
    ]
