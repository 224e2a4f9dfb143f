"""What runs beside a proxy's connections: what ends in it is told."""

import asyncio
import logging

import pytest

from enforcer.host.tasks import Tasks


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
