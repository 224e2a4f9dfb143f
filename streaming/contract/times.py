"""Times as people read them."""

import re
from calendar import monthrange, timegm
from typing import Final

_INSTANT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-]\d\d):(\d\d))", re.ASCII
)
_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def clock(ts_ms: int) -> str:
    """Time of day in UTC with milliseconds, by whole numbers alone, so that laws can say it too.

    >>> clock(1_795_166_668_375)
    '09:24:28.375'
    """
    in_day = ts_ms % _DAY_MS
    hours, minutes, seconds = in_day // _HOUR_MS, in_day % _HOUR_MS // _MINUTE_MS, in_day % _MINUTE_MS
    return f"{hours:02d}:{minutes:02d}:{seconds // _SECOND_MS:02d}.{in_day % _SECOND_MS:03d}"


def instant_ms(text: str) -> int:
    """An ISO 8601 time with its zone as ms since the epoch, rounded up; before that it is negative.

    >>> instant_ms("2026-11-20T10:24:28.375+01:00")
    1795166668375

    Raises:
        ValueError: it is none, or names no zone.
    """
    found = _INSTANT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no ISO 8601 time with its zone")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    east, beside = int(found[8] or 0), int(found[9] or 0)
    in_calendar = year and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
    if not in_calendar or hour > 23 or max(minute, second, beside) > 59 or abs(east) > 23:
        raise ValueError(f"{text!r} is in no calendar or on no clock")
    seconds = timegm((year, month, day, hour, minute, second))
    zone_ms = abs(east) * _HOUR_MS + beside * _MINUTE_MS
    part_ms = -(-int((found[7] or "0").ljust(9, "0")) // 1_000_000)
    return seconds * _SECOND_MS + part_ms - (-zone_ms if text[-6] == "-" else zone_ms)
