"""`weir collect kafka`: what a round of quotas that fails costs."""

import asyncio

import pytest

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from weir.collect import kafka as module
from weir.settings import CollectSettings


async def test_a_round_of_quotas_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong, as where no thread was left for it; with --once it is the command's failure."""
    failures: list[Exception] = [RuntimeError("can't start new thread"), WeirError("no answer")]
    failing, done = list(failures), asyncio.Event()

    def collect(*_: object) -> int:
        if failing:
            raise failing.pop(0)
        return 0

    monkeypatch.setattr(module, "collect_once", collect)
    settings = CollectSettings(interval_ms=100)
    rounds = asyncio.create_task(module._quotas(Cluster("x:1"), settings, done.set, once=False))
    ended = asyncio.create_task(done.wait())
    await asyncio.wait((rounds, ended), timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert done.is_set() and not rounds.done()
    rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)
    for failure in failures:
        failing.append(failure)
        with pytest.raises(type(failure)):
            await module._quotas(Cluster("x:1"), settings, done.set, once=True)
