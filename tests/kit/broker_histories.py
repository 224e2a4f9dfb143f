"""Any history of the laws of concurrency and backlogs, for properties."""

from typing import Any

from event_kit import T0, Event, backlog, quotas, sample
from hypothesis import strategies as st
from usage_kit import limit_policy, timeline_of

from streaming.policy.timeline import PolicyTimeline

ALL = "backpressure.partitions.*"
BIG = 2**63 - 1
ROUND_TRIPS = st.one_of(
    st.sampled_from([1, 99_999, 100_000, 10**9, 2**62, BIG]), st.integers(1, 10**9), st.integers(1, BIG)
)
STARTS = st.one_of(st.sampled_from([-(2**63), -1, 0, BIG]), st.integers(0, 10**11))
INFLIGHT = st.one_of(st.integers(0, 300), st.sampled_from([BIG, 2**31]))
ROOTS = st.one_of(st.integers(1, 50), st.sampled_from(["log10", "3*log10", "0.5*log10", "999999999*log10"]))
SMOOTHING = st.floats(0.01, 1.0)


@st.composite
def limit_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Any entry that the policy check lets pass, with or without a window."""
    low, start, high = sorted(draw(st.lists(st.integers(1, 2000), min_size=3, max_size=3)))
    bounds = {"minLimit": low, "initialLimit": start, "maxLimit": high}
    backoff = draw(st.floats(0.5, 0.99))
    tolerance = draw(st.floats(1.0, 10.0))
    keys: dict[str, dict[str, Any]] = {
        "fixed": {"limit": start},
        "aimd": {**bounds, "backoffRatio": backoff},
        "vegas": {
            "initialLimit": start,
            "maxLimit": high,
            "alpha": draw(ROOTS),
            "beta": draw(ROOTS),
            "threshold": draw(ROOTS),
            "smoothing": draw(SMOOTHING),
            "probeMultiplier": draw(st.sampled_from([1, 30, 2**31 - 1])),
        },
        "gradient": {
            **bounds, "rttTolerance": tolerance, "smoothing": draw(SMOOTHING), "backoffRatio": backoff,
            "probeInterval": draw(st.sampled_from([-1, 1, 7])),
        },
        "gradient2": {
            **bounds, "rttTolerance": tolerance, "smoothing": draw(SMOOTHING),
            "queueSize": draw(st.integers(1, 50)), "longWindow": draw(st.sampled_from([1, 50, 600])),
        },
    }  # fmt: skip
    keys["aimd-plain"] = keys["aimd"]
    algorithm = draw(st.sampled_from(sorted(keys)))
    windowed = draw(st.booleans())
    window = {"windowSize": draw(st.sampled_from([1, 3, 10]))}
    value = {"algorithm": algorithm, algorithm: keys[algorithm], "useWindowed": windowed, "window": window}
    return limit_policy(**value)[ALL]  # type: ignore[no-any-return]


@st.composite
def samples(draw: st.DrawFn, most: int = 60) -> list[Event]:
    """Samples of three partitions in order of time, of any size, their own clocks jumping as they like."""
    events = []
    for number in range(draw(st.integers(1, most))):
        fields: dict[str, Any] = {
            "rtt_ns": draw(ROUND_TRIPS),
            "partition": draw(st.sampled_from(["a", "b", "c"])),
            "did_drop": draw(st.booleans()),
        }
        if draw(st.booleans()):
            fields["start_ns"] = draw(STARTS)
        events.append(sample(str(number), number * 50, 1, draw(INFLIGHT), **fields))
    return events


@st.composite
def sampled(draw: st.DrawFn) -> tuple[list[Event], PolicyTimeline]:
    """Samples under policies that change."""
    paths = st.sampled_from([ALL, "backpressure.partitions.a"])
    changes = st.lists(st.tuples(st.integers(0, 3000), paths, st.none() | limit_settings()), max_size=3)
    return draw(samples()), timeline_of({ALL: draw(limit_settings())}, draw(changes))


@st.composite
def reports(draw: st.DrawFn, number: int = 0) -> Event:
    """A topic of some ledgers, empty and heavy ones among them; subscriptions anywhere, listed or not."""
    ids = sorted(draw(st.lists(st.integers(5, 30), min_size=1, max_size=6, unique=True)))
    ledgers = []
    for place, name in enumerate(ids):
        entries = draw(st.integers(0, 12))
        size = draw(st.sampled_from([0, 1, 7, 100, 1001, 2**40])) * entries + draw(st.integers(0, 3))
        closed = T0 - draw(st.integers(0, 100_000)) if place < len(ids) - 1 else None
        ledgers.append({"id": name, "entries": entries, "size": size if entries else 0, "closeTime": closed})
    subscriptions = [
        {
            "name": name,
            "ledger": draw(st.sampled_from(ids) | st.integers(3, 32)),
            "entry": draw(st.integers(-1, 13)),
            "durable": draw(st.integers(0, 4)) > 0,
            "oldestPublishTime": draw(st.none() | st.integers(0, 200_000).map(lambda ago: T0 - ago)),
        }
        for name in draw(st.lists(st.sampled_from("abcdef"), max_size=6, unique=True))
    ]
    topic = f"persistent://acme/orders/t{draw(st.integers(0, 2))}"
    return backlog(ledgers, *subscriptions, at_ms=number, topic=topic)


def policies_of(limit: int, precise: bool, seconds: int = -1) -> dict[str, Any]:
    """Both quotas for every topic of the namespace, evicting."""
    flags = {"preciseBacklogSize": precise, "preciseTimeBasedBacklogQuotaCheck": precise}
    return {"namespaces.acme/orders": quotas(limit, seconds), "broker": flags}


LIMITS = st.one_of(st.integers(0, 5000), st.sampled_from([0, 99, 100, 2**40, 2**42]))


@st.composite
def reported(draw: st.DrawFn) -> tuple[list[Event], PolicyTimeline]:
    """Reports on three topics in order of time, under policies that change."""
    changes = [(2, "namespaces.acme/orders", {}), (4, "broker", {"backlogQuotaDefaultLimitBytes": 1})]
    events = [draw(reports(number)) for number in range(draw(st.integers(1, 6)))]
    return events, timeline_of(policies_of(draw(LIMITS), draw(st.booleans()), 10), changes)
