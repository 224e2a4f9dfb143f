"""Parts side by side: how they end."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from streaming.contract.errors import WeirError
from streaming.kafka_io.threads import use_threads
from weir.stopping import unless, until_stopped


async def for_ever() -> None:
    """Until cancelled."""
    await asyncio.Event().wait()


async def test_all_end_when_one_fails() -> None:
    ended = []

    async def other() -> None:
        try:
            await for_ever()
        finally:
            ended.append("other")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise WeirError("taken over")

    with pytest.raises(WeirError, match="taken over"):
        await until_stopped(asyncio.Event(), [other(), fails()], [other()])
    assert ended == ["other", "other"]


async def test_parts_that_have_ended_are_enough() -> None:
    async def part() -> None:
        await asyncio.sleep(0)

    await until_stopped(asyncio.Event(), [part(), part()], [part()])


async def test_a_stop_cancels_parts_and_lets_the_orderly_end() -> None:
    ended = []

    async def part() -> None:
        try:
            await for_ever()
        finally:
            ended.append("part")

    stop = asyncio.Event()

    async def orderly() -> None:
        await stop.wait()
        await asyncio.sleep(0.01)
        ended.append("orderly")

    asyncio.get_running_loop().call_later(0.01, stop.set)
    await until_stopped(stop, [part()], [orderly()])
    assert ended == ["part", "orderly"]


async def test_a_failure_at_the_end_is_told() -> None:
    stop = asyncio.Event()

    async def orderly() -> None:
        await stop.wait()
        raise WeirError("not withdrawn")

    asyncio.get_running_loop().call_soon(stop.set)
    with pytest.raises(WeirError, match="not withdrawn"):
        await until_stopped(stop, [], [orderly()])


async def test_work_is_done_unless_stopped() -> None:
    stop = asyncio.Event()
    assert await unless(stop, asyncio.sleep(0))

    async def fails() -> None:
        raise WeirError("no answer")

    with pytest.raises(WeirError):
        await unless(stop, fails())
    asyncio.get_running_loop().call_later(0.01, stop.set)
    assert not await unless(stop, for_ever())


def test_a_call_that_blocks_keeps_nobody_from_ending() -> None:
    """What it returns and raises is told, until nobody waits for it any more."""
    free = threading.Event()

    async def run() -> None:
        use_threads()
        assert await asyncio.to_thread(lambda: 5) == 5
        with pytest.raises(KeyError):
            await asyncio.to_thread(dict[str, str]().__getitem__, "x")
        task = asyncio.create_task(asyncio.to_thread(free.wait, 60))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < 30
    free.set()


def test_no_pandas_in_a_loop() -> None:
    """Arrow would import it at its first array; a process of its own, since tests have pandas loaded."""
    work = """
import sys
import pyarrow
from weir.stopping import run_in_loop
async def make():
    print(pyarrow.array([1, None]).to_pylist(), "pandas" in sys.modules)
run_in_loop(make())
"""
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[1, None] False\n", done.stderr
