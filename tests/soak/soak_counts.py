"""What proxies count, noted where it has changed."""

from collections import defaultdict
from contextlib import suppress

from soak_history import Recorder, now_ms
from stack_kit import series_at

_GROWING = {"doubt": "weir_unacknowledged_answers_total", "expired": "weir_concurrency_slots_expired_total"}
"""By the kind of its entries."""
_VERSION = "weir_proxy_policy_version"
_TAKEN = "zeebe_backpressure_inflight_requests_count"
_WAITING = "weir_concurrency_queue_length"


class Counts:
    """Reads the metrics of parts.

    Args:
        told: takes what has grown.
    """

    def __init__(self, told: Recorder) -> None:
        self._told = told
        self._known: dict[tuple[int, str], float] = {}

    def look(self, name: str, pid: int, address: str, limit_s: float) -> None:
        """Note what has grown or changed since the last look; of a part that is stopped nothing is known."""
        found = counted(address, limit_s)
        for kind, series in _GROWING.items():
            count, before = found.get(series, 0.0), self._known.get((pid, kind), 0.0)
            if count > before:
                self._told.note(kind, part=name, pid=pid, count=int(count - before), at=now_ms())
                self._known[pid, kind] = count
        version = found.get(_VERSION)
        if version is not None and version != self._known.get((pid, _VERSION)):
            self._told.note("policies", part=name, pid=pid, version=version, at=now_ms())
            self._known[pid, _VERSION] = version


def slots(address: str, limit_s: float) -> tuple[float, float] | None:
    """How many slots are taken at a proxy, and how many clients wait for one; None: it says nothing."""
    found = counted(address, limit_s)
    return (found[_TAKEN], found[_WAITING]) if found else None


def counted(address: str, limit_s: float) -> dict[str, float]:
    """The series of a part, those of one name together; none: it says nothing within the limit."""
    found = defaultdict[str, float](float)
    with suppress(OSError):
        for series, value in series_at(f"http://{address}/metrics", limit_s).items():
            found[series.partition("{")[0]] += value
    return found
