"""`weir collect kafka`: what a round of quotas that fails costs, and what it reads."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from streaming.contract.errors import WeirError
from streaming.contract.topics import Cluster
from streaming.kafka_io.policy_topic import PolicyReader
from weir.collect import kafka as module


async def test_a_round_of_quotas_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong, as where no thread was left for it; with --once it is the command's failure."""
    failures: list[Exception] = [RuntimeError("can't start new thread"), WeirError("no answer")]
    failing, done = list(failures), asyncio.Event()

    def collect(*_: object) -> int:
        if failing:
            raise failing.pop(0)
        return 0

    monkeypatch.setattr(module, "collect_once", collect)
    monkeypatch.setattr(module, "watch_for", lambda *_: SimpleNamespace(look=lambda: True))
    monkeypatch.setattr(module, "ROUND_S", 0.1)
    rounds = asyncio.create_task(module._quotas(Cluster("x:1"), done.set, once=False))
    ended = asyncio.create_task(done.wait())
    await asyncio.wait((rounds, ended), timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert done.is_set() and not rounds.done()
    rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)
    for failure in failures:
        failing.append(failure)
        with pytest.raises(type(failure)):
            await module._quotas(Cluster("x:1"), done.set, once=True)


async def test_policies_are_read_on_until_their_topic_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with as many records as the former one would bring nothing, and its quotas never come back."""
    readers = list[PolicyReader]()

    def collect(_reader: object, policies: PolicyReader, *_: object) -> int:
        readers.append(policies)
        return 0

    def watch_for(_cluster: object, topic: str, anew: Callable[[], None]) -> SimpleNamespace:
        assert topic == "weir.policies"
        return SimpleNamespace(look=lambda: anew() if len(readers) == 2 else None)

    def done() -> None:
        if len(readers) == 4:
            raise EOFError

    monkeypatch.setattr(module, "collect_once", collect)
    monkeypatch.setattr(module, "watch_for", watch_for)
    monkeypatch.setattr(module, "ROUND_S", 0.1)
    with pytest.raises(EOFError):
        await module._quotas(Cluster("x:1"), done, once=False)
    first, second, third, fourth = readers
    assert first is second is not third is fourth
