"""Decisions as lines for people: when, what is allowed, to whom, and why (contract section 3)."""

from collections.abc import Callable
from typing import Any, Final

import orjson

from streaming.contract.decisions import decided_subject
from weir.logs.times import clock

OUTCOME_WIDTH: Final = 9
SUBJECT_WIDTH: Final = 34
NUMBERS_WIDTH: Final = 24
_FLAGS: Final = ("late", "shadow", "repeat")
_SHORT: Final = {
    "publishRateInMsgs": "publish msgs/s",
    "publishRateInBytes": "publish bytes/s",
    "dispatchRateInMsgs": "dispatch msgs/s",
    "dispatchRateInBytes": "dispatch bytes/s",
}
Said = tuple[str, str, list[str]]
"""A word for the outcome, the numbers, and why."""


def subject(decision: dict[str, Any]) -> str:
    """Whom a decision is about; empty if it does not say as it should.

    >>> subject({"type": "share", "group": "rg1", "broker": "b1"}), subject({"type": "share"})
    ('rg1/b1', '')
    """
    try:
        return decided_subject(decision)
    except (KeyError, TypeError):
        return ""


def describe(decision: dict[str, Any]) -> str:
    """One decision as a line: time, outcome, subject, what is allowed, why, flags, id.

    Anybody can write to the topic, so a decision that lacks what it should hold is shown field by field.
    """
    ts = decision.get("ts")
    when = clock(ts) if isinstance(ts, int) and not isinstance(ts, bool) else "?"
    kind = decision.get("type", "?")
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    try:
        if form is None:
            raise KeyError(kind)
        outcome, numbers, reasons = form(decision)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        rest = {key: value for key, value in decision.items() if key not in ("type", "ts")}
        return f"{when}  {kind!s:<{OUTCOME_WIDTH}} {orjson.dumps(rest).decode()}"
    parts = [
        f"{when}  {outcome:<{OUTCOME_WIDTH}} {subject(decision) or '(no quota)':<{SUBJECT_WIDTH}}",
        f"{numbers:<{NUMBERS_WIDTH}}",
        *reasons,
        *(flag for flag in _FLAGS if decision.get(flag) is True),
        f"[{decision.get('id', '?')}]",
    ]
    return "  ".join(part for part in parts if part)


def _admission(decision: dict[str, Any]) -> Said:
    reasons = []
    if decision.get("throttle_time_ms"):
        reasons.append(f"wait {decision['throttle_time_ms']} ms")
    if decision.get("rejected"):
        reasons.append("rejected " + ",".join(str(name) for name in decision["rejected"]))
    return str(decision["outcome"]), _balance(decision), reasons


def _balance(decision: dict[str, Any]) -> str:
    limit = decision.get("limit")
    if limit is None:
        return ""
    if "tokens" in decision:
        return f"tokens {decision['tokens']:>8.1f} at {limit:g}/s"
    return f"rate {decision['rate']:>10.2f} of {limit:g}/s"


def _share(decision: dict[str, Any]) -> Said:
    if decision["limits"] is None:
        return "removed", "", [f"{decision['removed']}, round {decision['round']}"]
    # By `limits`, not `usage`: a dimension that a broker does not use has no share.
    shares = [(f"{share:.2f} {_SHORT[name]}", name) for name, share in decision["limits"].items()]
    used = [f"used {decision['usage'][name]:.2f}" for _, name in shares]
    others = [f"{shares[place][0]}, {used[place]}" for place in range(1, len(shares))]
    return "share", shares[0][0], [used[0], *others, f"round {decision['round']}"]


def _dispatch(decision: dict[str, Any]) -> Said:
    entries = decision["entries_to_read"]
    available = decision["available"]
    left = [f"{available[name]} {name}" for name in ("msgs", "bytes") if available[name] is not None]
    numbers = f"{', '.join(left)} left" if left else "not limited"
    limiter = decision["limited_by"]
    if limiter is None:
        return "deliver", numbers, [] if entries is None else [f"read {entries} entries"]
    why = f"limited by {limiter['level']} {limiter['dimension']}"
    return "pause", numbers, [f"wait {decision['throttle_time_ms']} ms", why, f"at {decision['broker']}"]


def _limit(decision: dict[str, Any]) -> Said:
    exact = decision["estimated_limit"]
    reasons = [str(decision["algorithm"])]
    if exact != decision["limit"]:
        reasons.append(f"estimate {exact:.2f}")
    return "limit", f"{decision['limit']} in flight", reasons


def _backlog(decision: dict[str, Any]) -> Said:
    oldest = decision["oldestBacklogMessageSubscriptionName"]
    if oldest is None:
        return "empty", f"{decision['backlogSize']:.0f} bytes", []
    age = decision["oldestBacklogMessageAgeSeconds"]
    reasons = [f"oldest {oldest}, {'age not known' if age < 0 else f'{age} s old'}"]
    for exceeded, action in zip(decision["exceeded"], decision["actions"], strict=True):
        limit = (
            f"{decision['backlogQuotaLimitTime']} s"
            if exceeded == "message_age"
            else f"{decision['backlogQuotaLimitSize']} bytes"
        )
        reasons.append(f"over {limit}: {action['policy']}")
    reasons += [_eviction(line) for line in decision["evict"]]
    word = "exceeded" if decision["exceeded"] else "within"
    return word, f"{decision['backlogSize']:.0f} bytes behind", reasons


def _eviction(line: dict[str, Any]) -> str:
    if "before_publish_time" in line:
        return f"evict {line['subscription']} before {clock(line['before_publish_time'])}"
    place = f"{line['ledger']}:{line['entry']}"
    return f"evict {line['subscription']} up to {place}, {line['entries']} entries"


_FORMS: Final[dict[str, Callable[[dict[str, Any]], Said]]] = {
    "admission": _admission,
    "share": _share,
    "dispatch": _dispatch,
    "limit": _limit,
    "backlog": _backlog,
}
