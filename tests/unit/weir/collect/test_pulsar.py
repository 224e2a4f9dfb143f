"""The rounds of `weir collect pulsar`: its table, its end, and that it says when it is late."""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from streaming.collect.pulsar.collector import Outcome, Round
from streaming.collect.pulsar.counters import Passage
from streaming.collect.pulsar.limits import Rates, Slot
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.plan import Plan
from streaming.collect.pulsar.push import Change, Result
from streaming.collect.settings import AtStop, PulsarCollectSettings
from streaming.contract.errors import TakenOver, WeirError
from weir.collect import pulsar as module

SLOT = Slot.parse("publishRate a/b")
assert SLOT is not None
PASSED = Passage(period_ms={"b": 1}, counts={}, restarted=0, unknown=0)


class Collected:
    """A collector whose rounds are told; the last one asks for the end."""

    def __init__(self, *rounds: Round) -> None:
        self.pusher = self
        self.pushed: dict[Slot, Rates] = {SLOT: Rates(9, -1)}
        self.looked: list[list[Slot]] = []
        self.found: Rates | None = None
        self.unsure: list[Slot] = []
        self.withdrawn = False
        self.run: Any = None
        self._rounds = list(rounds)

    def interval_s(self) -> float:
        """Short."""
        return 0.001

    async def round(self) -> Round:
        """The next one."""
        if len(self._rounds) == 1:
            self.run._stop.set()
        return self._rounds.pop(0)

    async def look(self, slots: Sequence[Slot]) -> Mapping[Slot, Rates | None]:
        """The same is set everywhere; nothing as a rule."""
        self.looked.append(list(slots))
        return dict.fromkeys(self.looked[-1], self.found)

    def all_removals(self) -> list[Change]:
        """Of what is in force, and of what may be."""
        return [Change(slot, None) for slot in [*self.pushed, *self.unsure]]

    async def withdraw(self) -> None:
        """All goes."""
        self.withdrawn = True


def done(outcome: Outcome = Outcome.DONE, **fields: Any) -> Round:
    """A round that is over."""
    return Round(outcome=outcome, passed=PASSED, plan=Plan(), **fields)


def run(collected: Collected, *, at_stop: AtStop = AtStop.KEEP, **options: Any) -> CollectMetrics:
    """Until the end."""
    none = dict.fromkeys(("once", "push", "override"), False)
    args = argparse.Namespace(**{**none, "ready_file": None, **options})
    metrics = CollectMetrics()
    settings = PulsarCollectSettings(at_stop=at_stop)

    async def rounds() -> None:
        none: Any = None
        usage = module._Usage(args, settings, none, none, metrics, "http://here/metrics", asyncio.Event())
        collected.run, usage._collector = usage, collected  # type: ignore[assignment]
        await usage._rounds()

    asyncio.run(rounds())
    return metrics


def test_a_dry_run_says_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    """And again when it would be another."""
    same, other = (Change(SLOT, Rates(rate, -1)) for rate in (5, 6))
    rounds = (done(changes=[same]), done(changes=[same]), done(changes=[other]), done())
    run(Collected(*rounds))
    assert capsys.readouterr().out.splitlines() == [
        f"publishRate a/b: nothing -> {rate} msg per 1 s" for rate in (5, 6)
    ]


@pytest.mark.parametrize(("override", "word"), [(False, "left alone"), (True, "taken over")])
def test_a_dry_run_says_what_becomes_of_others_limits(override: bool, word: str, capsys: Any) -> None:
    """With --override, that they are taken over: `left alone` was said of them all the same."""
    collected = Collected(done(changes=[Change(SLOT, Rates(5, -1))]))
    collected.found = Rates(7, -1)
    run(collected, override=override)
    assert capsys.readouterr().out.endswith(f" ({word}: set by somebody else)\n")


def test_the_ready_file_comes_with_the_first_report(tmp_path: Path) -> None:
    """Not before: until then nobody knows whether it works."""
    file = tmp_path / "ready.json"
    run(Collected(done(Outcome.UNREAD), done(Outcome.UNREPORTED)), ready_file=file)
    assert not file.exists()
    run(Collected(done(Outcome.FIRST)), ready_file=file)
    assert json.loads(file.read_text())["metrics"] == "http://here/metrics"


def test_once_ends_with_its_failure() -> None:
    """After two readings; a round that failed, and a limit that was not pushed, are failures."""
    run(Collected(done(Outcome.FIRST), done(), done()), once=True)
    with pytest.raises(WeirError, match="no broker has answered twice"):
        run(Collected(done(Outcome.FIRST), done(Outcome.FIRST), done()), once=True)
    with pytest.raises(WeirError, match="unread"):
        run(Collected(done(Outcome.UNREAD), done()), once=True)
    with pytest.raises(WeirError, match="1 limits were not pushed, such as publishRate a/b"):
        run(Collected(done(results={SLOT: Result.REFUSED}), done()), once=True)


@pytest.mark.parametrize(
    ("push", "at_stop", "withdrawn"),
    [(True, AtStop.KEEP, False), (True, AtStop.REMOVE, True), (False, AtStop.REMOVE, False)],
)
def test_at_the_end_limits_stay_or_go(push: bool, at_stop: AtStop, withdrawn: bool) -> None:
    """As the setting says; who does not push takes nothing away."""
    collected = Collected(done())
    run(collected, push=push, at_stop=at_stop)
    assert collected.withdrawn == withdrawn


def test_a_push_that_may_have_been_carried_out_goes_too() -> None:
    """Pulsar may hold the first limit of all, though its push was answered by an error."""
    collected = Collected(done())
    collected.pushed, collected.unsure = {}, [SLOT]
    run(collected, push=True, at_stop=AtStop.REMOVE)
    assert collected.withdrawn


def test_a_round_that_is_late_is_counted_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute, however many are."""
    monkeypatch.setattr(Collected, "interval_s", lambda _self: -1.0)
    metrics = run(Collected(done(), done(), done()))
    assert metrics.behind._value.get() == 3
    assert sum("falls behind" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_usage_goes_on_when_the_one_that_took_over_has_ended(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """If it stands by; else the command ends. Then Pulsar may be away for a while."""
    stop, stood_by, runs, begins = asyncio.Event(), [], 0, 0

    async def begin(*_: Any) -> None:
        nonlocal begins
        begins += 1
        if begins == 2:
            raise WeirError("b:8080 does not answer")

    async def rounds(self: Any) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise TakenOver("another collector", "lease")
        stop.set()

    async def stand_by(_cluster: Any, taken: TakenOver, interval_s: float) -> None:
        stood_by.append((taken.lease, interval_s))

    monkeypatch.setattr(module._Usage, "_begin", begin)
    monkeypatch.setattr(module._Usage, "_rounds", rounds)
    monkeypatch.setattr(module, "stand_by", stand_by)
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    args: Any = argparse.Namespace(once=False, stand_by=waits)
    given: Any = (PulsarCollectSettings(), None, None, CollectMetrics(), None, stop)
    if waits:
        asyncio.run(module._Usage(args, *given).run())
        assert (runs, begins, stood_by) == (2, 3, [("lease", 5.0)])
    else:
        with pytest.raises(TakenOver):
            asyncio.run(module._Usage(args, *given).run())
