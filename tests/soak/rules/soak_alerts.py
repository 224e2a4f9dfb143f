"""Which alert what befalls explains, and which it has to raise (compose/prometheus/rules.yml)."""

import re
from collections.abc import Iterator
from functools import cache

from monitoring_kit import alerts as rules
from prometheus_kit import Prometheus
from soak_history import Entry, History, Recorder
from soak_schedule import LINKS, PROXIES, PULSAR, kind_of

STEP_S = 5.0
BACK_MS = 300_000
"""A part may take so long to be back."""
SLACK_MS = 60_000
"""Beside its `for`: for scrapes, evaluations, and what has to be counted first."""
LOAD = "load"
OF = {
    "proxy": (*PROXIES, *LINKS[1:]), "job": ("job", "jvm", "worker", "checkpoint", LINKS[0]),
    "kafka": ("kafka", "controller", "cluster"), "pulsar": PULSAR, "admin": ("admin",),
    "collect": ("collect",),
}  # fmt: skip
"""What is befallen, by the part that suffers."""
_ALL = ("proxy", "job", "kafka", "pulsar")
EXPLAINED: dict[str, tuple[str, ...]] = {
    "WeirProxyDown": ("proxy", "kafka", "pulsar"),
    "WeirProxyRestarts": ("proxy", "pulsar"),
    "WeirJobDown": ("job", "kafka"),
    "WeirAdminDown": ("admin", "kafka"),
    "WeirCollectorDown": ("collect", "kafka"),
    "WeirDecisionsLate": _ALL,
    "WeirAnswersUnacknowledged": _ALL,
    "WeirEventsLost": ("kafka",),
    "WeirLocalDecisionsLost": ("kafka",),
    "WeirMutationsChargedLater": _ALL,
    "WeirJobStopped": ("job", "kafka"),
    "WeirJobBehind": ("job", "kafka"),
    "WeirJobRestarts": ("job", "kafka"),
    "WeirDecisionsSlow": ("job", "kafka"),
    "WeirCheckpointSlow": ("job", "kafka"),
    "WeirProxyLoopSlow": _ALL,
    "WeirRequestsDropped": _ALL,
    "WeirBrokerUnreachable": ("proxy", "kafka", "pulsar"),
    "WeirSharesExpired": _ALL,
    "WeirSharesUnfair": _ALL,
    "WeirGroupOvershoot": _ALL,
    "WeirDispatchUnlimited": _ALL,
    "WeirConcurrencyLocal": ("job", "kafka"),
    "WeirPublishWaits": ("job", "kafka", "pulsar"),
    "WeirSlotsExpired": ("proxy", "kafka", "pulsar"),
    "WeirProducersBlocked": (*_ALL, "collect"),
    "WeirBlocksStale": ("job", "kafka", "collect"),
    "WeirBlocksNotLogged": ("kafka",),
    # Producers go on while what is known of a backlog is too old.
    "WeirBacklogNearQuota": ("job", "kafka", "collect"),
    "WeirBacklogOverQuota": ("job", "kafka", "collect"),
    "WeirBacklogChecksFail": ("kafka",),
    "WeirBacklogChecksSlow": ("kafka",),
    "WeirBacklogTopicsUnread": ("kafka",),
    "WeirDecisionsDiffer": (LOAD,),
    "WeirGroupLimitLow": (LOAD,),
    "WeirEntityNear": (LOAD,),
    "WeirEntityThrottled": (LOAD,),
    "WeirEntityEmpty": (LOAD,),
}
"""Whose faults may raise an alert; load: clients that want more than their limits. Others may never fire."""
DEMANDED: dict[tuple[str, str], tuple[str, ...]] = {
    ("down", "job"): ("WeirJobDown",),
    ("down", "one"): ("WeirProxyDown",),
    ("down", "admin"): ("WeirAdminDown",),
    ("down", "collect"): ("WeirCollectorDown",),
    ("down", "cluster"): ("WeirBrokerUnreachable", "WeirEventsLost"),
    ("stop", "jvm"): ("WeirJobStopped", "WeirSharesExpired"),
}
"""What a long fault has to raise."""
_UNIT_MS = {"m": 60_000, "h": 3_600_000}


def note_alerts(
    prometheus: Prometheus, told: Recorder, parts: dict[str, str], begun: int, ended: int
) -> None:
    """Note each time in which an alert fired, from the begin of the watch to its end, ms.

    Args:
        prometheus: that has watched.
        told: takes them.
        parts: HOST:PORT of metrics -> whose.
        begun, ended: of the watch.

    Raises:
        OSError, AssertionError: it does not answer, or by an error.
    """
    firing = prometheus.ask_range('ALERTS{alertstate="firing"}', begun / 1000, ended / 1000, STEP_S)
    told.note("watched", begun=begun, ended=ended)
    for series in firing:
        labels, times = series["metric"], [round(1000 * at) for at, _ in series["values"]]
        gaps = [n for n in range(1, len(times)) if times[n] - times[n - 1] > 1500 * STEP_S]
        for since, until in zip([0, *gaps], [*gaps, len(times)], strict=True):
            told.note(
                "alert", name=labels["alertname"], part=parts.get(labels.get("instance", ""), ""),
                severity=labels["severity"], begun=times[since], ended=times[until - 1],
            )  # fmt: skip


@cache
def patience() -> dict[str, tuple[int, int]]:
    """`for` of each alert, and the longest time that its question looks back, ms."""
    return {
        rule["alert"]: (_ms(rule["for"]), max(map(_ms, re.findall(r"\[(\w+)\]", rule["expr"])), default=0))
        for rule in rules()
    }


def _ms(said: str) -> int:
    return int(said[:-1]) * _UNIT_MS[said[-1]]


def alerts(history: History) -> Iterator[str]:
    """Each fired that a long fault has to raise, and none that no fault explains: while all is well none."""
    if not history["watched"]:
        yield "no rule was evaluated"
    for one in history["alert"]:
        of = EXPLAINED.get(one["name"], ())
        since = one["begun"] - sum(patience().get(one["name"], ())) - BACK_MS
        targets = {target for group in of if group != LOAD for target in OF[group]}
        if LOAD not in of and not any(
            fault["target"] in targets and since <= fault["ended"] and fault["begun"] <= one["begun"]
            for fault in history["fault"]
        ):
            yield f"{one['name']} of {one['part']} fired at {one['begun']}, which no fault before explains"
    for watched in history["watched"]:
        yield from _silent(history, watched["ended"])


def _silent(history: History, until: int) -> Iterator[str]:
    for fault in history["fault"]:
        what, target, long = kind_of(fault)
        for name in DEMANDED[what, target] if long else ():
            for_ms, range_ms = patience()[name]
            # Of no share none expires: as a proxy joins, what tells about the job tells enough.
            if name == "WeirSharesExpired" and not _shares(history, fault["begun"]):
                continue
            if until < fault["begun"] + for_ms + range_ms + SLACK_MS:
                continue
            # One that fired before counts where it does so still when this fault would raise it.
            if not any(
                one["name"] == name
                and (one["part"] == target or target in ("cluster", "jvm"))
                and one["begun"] <= fault["ended"] + for_ms + range_ms
                and (one["begun"] >= fault["begun"] or one["ended"] >= fault["begun"] + for_ms)
                for one in history["alert"]
            ):
                yield f"{name} did not fire after {what} {target}, {fault['for_s']:.0f} s"


def _shares(history: History, at: int) -> bool:
    """Whether a proxy had a share then, by the last that was decided before."""
    newest = {}
    for one in history["decision"]:
        decision = one["decision"]
        if decision["type"] == "share" and one["at"] <= at:
            newest[decision["group"], decision["broker"]] = decision["limits"]
    return any(limits is not None for limits in newest.values())


def spans(history: History) -> Iterator[tuple[str, list[Entry]]]:
    """Each alert that fired, with its times."""
    for name in sorted({one["name"] for one in history["alert"]}):
        yield name, [one for one in history["alert"] if one["name"] == name]
