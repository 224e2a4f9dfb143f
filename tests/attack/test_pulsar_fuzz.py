"""Pulsar frames that nobody should send, from clients and from brokers: one connection ends, never the proxy.

What is sent is made in tests/kit/pulsar_fuzz.py; a failure says how to repeat it.
"""

import asyncio
import gc
import logging
from unittest.mock import patch

import pytest
from fuzz_rig import short_ends
from pulsar_fuzz import KINDS, PulsarFuzz

from enforcer.host.budget import resident_bytes
from enforcer.pulsar.lookup import part

SEED = 20_261_123
SHORT = 3_000
SOAK = 1_000_000
TURN_MAX_S = 0.050
GROWTH_MAX_BYTES = 64 << 20
_WARM_UP = 600


async def hold_out(kind: str, seed: int, frames: int) -> None:
    """Fuzz a proxy and hold its memory and its turns to their bounds."""
    fuzz = PulsarFuzz(kind, seed)
    number = played = before = 0
    gc.collect()
    while played < frames:
        played += await fuzz.play(number)
        number += 1
        if not before and played > _WARM_UP:
            before, fuzz.longest_s = resident_bytes(), 0.0
    await asyncio.sleep(0.2)
    assert fuzz.longest_s < TURN_MAX_S
    assert resident_bytes() - before < GROWTH_MAX_BYTES
    assert fuzz.proxy.metrics.traffic.connections == 0
    await fuzz.proxy.stop()


def run(kind: str, seed: int, frames: int) -> None:
    """In a loop of its own; what each broken connection logs is not of interest."""
    logging.disable(logging.WARNING)
    try:
        # Or each lookup that nobody answers would be waited for.
        with short_ends(), patch.object(part, "LOOKUP_TIMEOUT_MS", 100):
            asyncio.run(hold_out(kind, seed, frames))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_pulsar_frames(kind: str) -> None:
    """Some thousand of them, without limits and with all of them in force."""
    run(kind, SEED, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_hostile_pulsar_frames(kind: str) -> None:
    """A million of them."""
    run(kind, SEED + 1, SOAK)
