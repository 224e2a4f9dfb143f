"""What runs beside a proxy's connections: what ends in it is told, and a timer measures how late it is."""

import asyncio
import logging
import time

import pytest
from prometheus_client import CollectorRegistry, Histogram

from enforcer.host.tasks import BEAT_S, Tasks, beat


@pytest.mark.parametrize("ends", ["mistake", "cancelled", "done"])
def test_one_that_ends_by_a_mistake_is_told(ends: str, caplog: pytest.LogCaptureFixture) -> None:
    """At the highest level, with its cause; an ordinary end is not worth a line, and none is kept."""

    async def part() -> None:
        if ends == "mistake":
            raise ValueError("a mistake")
        await asyncio.sleep(60 if ends == "cancelled" else 0)

    async def watch() -> None:
        tasks = Tasks()
        tasks.spawn(part())
        (task,) = tasks._tasks
        await asyncio.sleep(0)
        if ends == "cancelled":
            tasks.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert not tasks._tasks

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(watch())
    told = [str(record.args) for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(told) == (ends == "mistake") and all("a mistake" in line for line in told)


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
