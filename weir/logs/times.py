"""Points in time: as the command line has them, and in words."""

import re
import time
from datetime import UTC, datetime
from typing import Literal

from streaming.contract.fields import INT64_MAX, TS_MAX_MS

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EXPECTED = "milliseconds since the epoch, an ISO 8601 time, -10m (also s, h, d), beginning, end or now"
BEGINNING_MS = 0
_DIGITS_MAX = 18
_SHOWN = 40


def wall_ms() -> int:
    """Our own clock, ms since the epoch."""
    return time.time_ns() // 1_000_000


def parse_time(text: str, now_ms: int) -> int:
    """A TIME argument as milliseconds since the epoch.

    Args:
        text: see EXPECTED; an ISO time without a zone is UTC, like every time of Weir.
        now_ms: what relative times count back from.

    Raises:
        ValueError: it is none of these.
    """
    if text in ("end", "now"):
        return now_ms
    if text == "beginning":
        return BEGINNING_MS
    wrong = ValueError(f"{text[:_SHOWN]!r} is not a time; expected {EXPECTED}")
    if re.fullmatch(r"\d+", text):
        if len(text.lstrip("0")) > _DIGITS_MAX or int(text) > TS_MAX_MS:
            raise wrong
        return int(text)
    relative = re.fullmatch(r"-(\d+(?:\.\d+)?)([smhd])", text)
    if relative:
        if len(relative[1]) > _DIGITS_MAX:
            raise wrong
        return max(BEGINNING_MS, now_ms - round(float(relative[1]) * _UNIT_MS[relative[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(BEGINNING_MS, round(moment.timestamp() * 1000))


def moment(ts_ms: int, unit: Literal["m", "s", "ms"] = "ms") -> str:
    """A time in words, of any year, as logs may have it, and waits.

    >>> moment(1_795_132_800_000, "m"), moment(2**53)
    ('2026-11-20T00:00Z', '287396-10-12T08:59:00.992Z')
    """
    # Here and not above: `weir --help` must not load it.
    import numpy as np

    return f"{np.datetime_as_string(np.datetime64(int(min(ts_ms, INT64_MAX)), 'ms'), unit=unit)}Z"
