"""Points in time on the command line."""

import re
from datetime import UTC, datetime

from streaming.contract.fields import TS_MAX_MS

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
EXPECTED = "milliseconds since the epoch, an ISO 8601 time, -10m (also s, h, d), beginning or now"
BEGINNING_MS = 0
_DIGITS_MAX = 18
_SHOWN = 40


def parse_time(text: str, now_ms: int) -> int:
    """A TIME argument as milliseconds since the epoch.

    Args:
        text: see EXPECTED; an ISO time without a zone is UTC, like every time of Weir.
        now_ms: what relative times count back from.

    Raises:
        ValueError: it is none of these.
    """
    if text == "now":
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
