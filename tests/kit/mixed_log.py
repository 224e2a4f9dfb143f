"""A log in which all laws have something to say, and policies for it."""

import random
from typing import Any

from event_kit import TOPIC, backlog, delivery, ledger, quotas, report, sample, tick
from law_kit import policy, quota, refund, request

OTHER = "persistent://acme/other/x"
TODAY: dict[str, Any] = {
    "quotas": [
        {"entity": {"user": None}, "controller_mutation_rate": 0.5, "controller_mutation_burst": 20},
        {"entity": {"user": "u1"}, "producer_byte_rate": 500},
    ],
    "resourcegroups": {"rg1": {"publishRateInMsgs": 60}, "rg2": {"publishRateInMsgs": 90}},
    "broker": {"resourceUsagePublishIntervalInSecs": 5},
    "namespaces": {"acme/orders": {
        "subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 20}, **quotas(size=5000),
    }},
    "backpressure": {"partitions": {"*": {"algorithm": "vegas"}}},
}  # fmt: skip
TOMORROW: dict[str, Any] = {
    "quotas": [
        {"entity": {"user": None, "client-id": None}, "controller_mutation_rate": 0.2},
        {"entity": {"user": "u2"}, "controller_mutation_rate": 0.7, "algorithm": "sampled_rate"},
        {"entity": {"user": "u3"}, "controller_mutation_rate": 0.05, "shadow": True},
    ],
    "resourcegroups": {"rg1": {"publishRateInMsgs": 30}},
    "broker": {"resourceUsagePublishIntervalInSecs": 3},
    "namespaces": {"acme/other": {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 3}}},
    "backpressure": {"partitions": {"p1": {"algorithm": "fixed", "fixed": {"limit": 3}}}},
}  # fmt: skip


def mixed(count: int, seed: int) -> list[Any]:
    """Events of all laws in order of time, and changes of policy."""
    draw, at, events = random.Random(seed), 0, list[Any]()
    changes = {
        "quotas[user=u1]": (quota(0.01, 5), quota(2, 20), None, quota(0.5, 20, algorithm="sampled_rate")),
        "resourcegroups.rg1": ({"publishRateInMsgs": 20}, {"publishRateInMsgs": 200}),
        "namespaces.acme/other": ({"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10}},),
    }
    for number in range(count):
        at += draw.choice([0, 0, 1, 40, 300, 2000])
        user, broker, topic = draw.choice(["u1", "u2", "u3"]), draw.choice("ab"), draw.choice([TOPIC, OTHER])
        path = draw.choice(list(changes))
        usage = {draw.choice(["rg1", "rg2", "quota/user=u1"]): {"publishedMsg": draw.randint(0, 300)}}
        items, strict = [draw.randint(0, 9) for _ in range(draw.randint(0, 3))], draw.random() < 0.8
        made = draw.choices(
            [
                request(f"r{number}", at, *items, user=user, client_id=draw.choice("ab"), strict=strict),
                refund(at, max(0, at - 900), draw.randint(0, 5), user=user, name=f"f{number}"),
                delivery(at, msgs=draw.randint(0, 60), broker=broker, topic=topic) | {"id": f"d{number}"},
                report(at, broker, usage) | {"id": f"g{number}"},
                sample(f"s{number}", at, draw.randint(1, 90), draw.randint(1, 60), partition=f"p{broker}"),
                backlog([ledger(1, 9, draw.randint(0, 9999))], at_ms=at, topic=topic),
                tick(at), policy(at, path, draw.choice(changes[path])),
            ],
            [45, 3, 17, 15, 13, 3, 1, 1],
        )  # fmt: skip
        events += made
    return events
