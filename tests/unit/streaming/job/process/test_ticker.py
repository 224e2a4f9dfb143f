"""How often the job ticks: each round, as the policies say it."""

import orjson
import pytest

from streaming.job.process.ticker import ROUND_DEFAULT_S, _round_ms

KNOWN = 7000


def broker(value: object) -> bytes:
    return orjson.dumps({"type": "policy", "path": "broker", "value": value})


@pytest.mark.parametrize(
    ("record", "round_ms"),
    [
        (broker({"resourceUsagePublishIntervalInSecs": 2}), 2000),
        (broker({"preciseBacklogSize": True}), ROUND_DEFAULT_S * 1000),
        (broker(None), ROUND_DEFAULT_S * 1000),
        (broker({"resourceUsagePublishIntervalInSecs": "soon"}), KNOWN),
        (broker({"resourceUsagePublishIntervalInSecs": 0}), KNOWN),
        (orjson.dumps({"path": "tenants.acme", "value": {}}), KNOWN),
        (b"garbage", KNOWN),
        (b"[]", KNOWN),
        (None, KNOWN),
    ],
)
def test_the_round_follows_the_broker_policy(record: bytes | None, round_ms: int) -> None:
    """What is no usable policy changes nothing; what leaves the key out has the default."""
    assert _round_ms(record, KNOWN) == round_ms
