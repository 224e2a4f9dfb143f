"""Times as people read them."""

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000


def clock(ts_ms: int) -> str:
    """Time of day in UTC with milliseconds, by whole numbers alone, so that laws can say it too.

    >>> clock(1_795_166_668_375)
    '09:24:28.375'
    """
    in_day = ts_ms % _DAY_MS
    hours, minutes, seconds = in_day // _HOUR_MS, in_day % _HOUR_MS // _MINUTE_MS, in_day % _MINUTE_MS
    return f"{hours:02d}:{minutes:02d}:{seconds // _SECOND_MS:02d}.{in_day % _SECOND_MS:03d}"
