"""Times on the command line."""

import pytest

from weir.logs.times import parse_time

NOW = 1_795_166_668_375


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795166668375", NOW), ("now", NOW), ("end", NOW), ("beginning", 0), ("-10s", NOW - 10_000),
        ("-1.5m", NOW - 90_000), ("-2h", NOW - 7_200_000), ("-1d", NOW - 86_400_000), ("-99999999d", 0),
        ("2026-11-20T09:24:28.375", NOW), ("2026-11-20T10:24:28.375+01:00", NOW),
        ("2026-11-20T09:24:28.375Z", NOW),
    ],
)  # fmt: skip
def test_times_are_read(text: str, expected: int) -> None:
    """Milliseconds, ISO 8601 (UTC without a zone), relative ones, and words; a log ends now."""
    assert parse_time(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "", "-10", "-10x", "10m", "12:00"),
        *("9" * 400, "9" * 5_000, f"-{'9' * 400}d", "253402300800000"),
    ],
)
def test_others_are_refused_with_what_is_expected(text: str) -> None:
    """The message names the text and the forms that are understood."""
    with pytest.raises(ValueError, match="ISO 8601"):
        parse_time(text, NOW)
