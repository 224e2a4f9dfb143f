"""The timer that measures how late it is."""

import asyncio
import time

from prometheus_client import CollectorRegistry, Histogram

from enforcer.host.tasks import BEAT_S, beat


async def test_what_holds_the_loop_is_seen() -> None:
    """A pause of the loop is in the histogram; after the end there are no more beats."""
    registry, beats = CollectorRegistry(), list[int]()
    delay = Histogram("delay", "of the loop", registry=registry, buckets=(0.1, 10.0))
    beating = asyncio.create_task(beat(delay, lambda: beats.append(1)))
    await asyncio.sleep(0)
    until = time.monotonic() + BEAT_S + 0.2
    while time.monotonic() < until:
        pass
    await asyncio.sleep(0.01)
    beating.cancel()
    seen = len(beats)
    await asyncio.sleep(BEAT_S * 2)
    assert len(beats) == seen
    count = registry.get_sample_value("delay_count")
    assert (
        beats
        and count is not None
        and count - (registry.get_sample_value("delay_bucket", {"le": "0.1"}) or 0) >= 1
    )


async def test_a_mistake_at_a_beat_does_not_end_the_beats() -> None:
    """Memory is looked at from there: the next beat comes all the same, and the loop is told."""
    beats, told = list[int](), list[object]()
    delay = Histogram("delay", "of the loop", registry=CollectorRegistry())
    enough = asyncio.Event()

    def broken() -> None:
        beats.append(1)
        if len(beats) == 3:
            enough.set()
        raise ValueError("a mistake")

    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    beating = asyncio.create_task(beat(delay, broken))
    await asyncio.wait_for(enough.wait(), 5)
    beating.cancel()
    assert len(beats) == len(told) == 3
