"""An enforcer's own timers and its start, without a cluster; and a law that nobody else names."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from message_kit import Record
from mutation_kit import Desk
from sample_kit import sample_of

from enforcer.core import control as control_module
from enforcer.core.control import ControlPlane
from enforcer.core.feeds import membership
from enforcer.core.feeds.decisions import decisions_in
from enforcer.core.law import Context, DecisionReader, EnforcerLaw, Work
from enforcer.core.metrics import Metrics
from enforcer.core.settings import ProxySettings
from enforcer.laws.enforcement import LAWS, Enforcement
from enforcer.laws.mutation import law as mutation_law
from enforcer.laws.mutation.law import MutationQuotas
from streaming.contract.fields import integer
from streaming.contract.topics import Cluster

DAY_MS = 86_400_000
NOBODY = Cluster("127.0.0.1:9")


@pytest.fixture(autouse=True)
def _soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes a last word."""
    for module, name in ((control_module, "_STOP_S"), (control_module, "_FLUSH_S"), (membership, "_STOP_S")):
        monkeypatch.setattr(module, name, 0.05)


async def test_a_policy_dated_days_ahead_is_looked_at_again_until_its_time() -> None:
    """No timer of the loop is set farther ahead than a day; the function is called once, at its time.

    By the brokers' clock, as policies come into force by it.
    """
    called: list[float] = []
    control = ControlPlane("p1", ProxySettings(), Metrics(10), NOBODY, speaks="kafka")
    now_ms = 0.0
    timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []
    loop = SimpleNamespace(
        call_later=lambda delay_s, function, *given: timers.append((delay_s, function, given)),
        call_soon=lambda function: function(),
    )
    control._loop = cast(asyncio.AbstractEventLoop, loop)
    control._brokers.now_ms = lambda: int(now_ms)  # type: ignore[method-assign]
    control.call_at(2 * DAY_MS + 5, lambda: called.append(now_ms))
    while timers:
        ((delay_s, function, given),) = timers
        assert delay_s <= DAY_MS / 1000
        timers.clear()
        now_ms += delay_s * 1000
        function(*given)
    assert called == [2 * DAY_MS + 5]


async def test_a_stop_as_the_policies_are_read_ends_the_start() -> None:
    """It was forgotten: a stop waited until all else was read, or for start_timeout_ms."""
    control = ControlPlane("p1", ProxySettings(), Metrics(10), NOBODY, speaks="kafka")
    starting = asyncio.create_task(control.start([]))
    await asyncio.sleep(0)
    control._policies_tail.caught_up.set()
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,), timeout=0.5)
    ended = starting.cancelled()
    starting.cancel()
    await control.stop()
    assert ended


async def test_it_serves_while_the_job_is_away() -> None:
    """Once all is read back and the limit of the start is over; the job that comes makes it ready."""
    seen: list[tuple[bool, bool, bool]] = []
    desk = Desk()
    law = MutationQuotas(desk.context)

    def look() -> None:
        seen.append((law.serving.is_set(), law.ready.is_set(), desk.metrics.local.alone))

    async def ask() -> bool:
        look()
        if len(seen) == 2:
            law.coordinator.begin()
        if len(seen) == 3:
            desk.pass_ms(desk.settings.start_timeout_ms)
        return len(seen) > 4

    law._ask_probe = ask  # type: ignore[method-assign]  # no broker
    await law.probe()
    look()
    assert seen == [(False, False, False)] * 3 + [(True, False, True)] * 4 + [(True, True, False)]


@pytest.mark.parametrize("looks", [0, 2])
async def test_it_waits_for_the_policies_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """Nothing is asked before they are read, or until it is better off without."""
    monkeypatch.setattr(mutation_law, "_LOOK_S", 0.0)
    monkeypatch.setattr(mutation_law, "_POLICIES_LOOKS", 5)
    desk, looked, asked = Desk(), 0, list[int]()

    def known() -> bool:
        nonlocal looked
        looked += 1
        return 0 < looks < looked

    desk.coordinator.policies.known = known
    law = MutationQuotas(desk.context)

    async def ask() -> bool:
        asked.append(looked)
        return True

    law._ask_probe = ask  # type: ignore[method-assign]  # no broker
    await law.probe()
    assert asked == [looks + 1 if looks else 5] * 3


@pytest.mark.parametrize(
    ("start_ms", "patience_ms", "read"), [(1, 60_000, True), (1, 50, False), (0, 60_000, False)]
)
async def test_policies_are_waited_for_with_patience(start_ms: int, patience_ms: int, read: bool) -> None:
    """What is read back after that has its own time; the patience has an end, and 0 waits for nothing."""
    settings = ProxySettings(start_timeout_ms=start_ms)
    control = ControlPlane("p1", settings, Metrics(10), NOBODY, speaks="kafka", patience_ms=patience_ms)
    starting, known = asyncio.create_task(control.start([])), control._policies_tail.caught_up
    if read:
        assert not (await asyncio.wait((starting,), timeout=0.2))[0]
        known.set()
    async with asyncio.timeout(5):
        await starting
    assert control._start_until_ms <= control.clock.steady_ms()
    assert known.is_set() == read
    await control.stop()


async def test_that_nothing_decided_can_be_followed_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Such as where no thread is left: no law begins until a restart, and all seems to be well."""

    async def fail() -> None:
        raise RuntimeError("can't start new thread")

    control = ControlPlane("p1", ProxySettings(start_timeout_ms=1), Metrics(10), NOBODY, speaks="kafka")
    control._joining.heard_of = fail  # type: ignore[method-assign]
    for read in (control._policies_tail.caught_up, control._joining.known, control._follow().caught_up):
        read.set()
    await control.start([])
    await control.stop()
    assert [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"] == [
        "what was decided before cannot be followed, restart the proxy"
    ]


class Hearts(EnforcerLaw):
    """A toy law: counts the beats that were decided."""

    reads = DecisionReader(
        type="pulse",
        parse=lambda fields: SimpleNamespace(ts=fields["ts"], beats=integer(fields, "beats", None)),
    )

    def __init__(self, context: Context, _accounts: object) -> None:
        self.name = context.proxy_id
        self.beats: list[list[int]] = []
        self.steps: list[str] = []

    def take(self, decisions: Sequence[Any]) -> None:
        """See EnforcerLaw."""
        self.beats.append([pulse.beats for pulse in decisions])

    def look(self) -> None:
        """See EnforcerLaw."""
        self.steps.append("look")

    def work(self) -> list[Work]:
        """See EnforcerLaw."""
        self.steps.append("work")
        return []

    def stop(self) -> None:
        """See EnforcerLaw."""
        self.steps.append("stop")


class Ailing(Hearts):
    """Another, full of mistakes."""

    reads = replace(Hearts.reads, type="ail")

    def take(self, _decisions: Sequence[Any]) -> None:
        """See EnforcerLaw."""
        raise ValueError

    async def open(self, _newest_ms: int) -> None:
        """See EnforcerLaw."""
        raise ValueError

    def stop(self) -> None:
        """See EnforcerLaw."""
        raise ValueError


@pytest.mark.parametrize("laws", [[Hearts], [Ailing, Hearts]])
def test_a_law_is_one_class_and_one_registration(laws: list[type[EnforcerLaw]]) -> None:
    """It is made, given its decisions, looked at, run and stopped; nothing else names it.

    Mistakes of another law are not its own.
    """
    LAWS.extend(laws)
    told: list[str] = []

    async def run() -> Hearts:
        settings = ProxySettings(start_timeout_ms=1)
        control = ControlPlane("p1", settings, Metrics(10), NOBODY, speaks="kafka")
        enforcement = Enforcement(control)
        law = enforcement.of(Hearts)
        await enforcement.start()
        values = [
            {"type": "pulse", "ts": 5, "beats": 7}, {"type": "pulse", "ts": 5, "beats": -1},
            {"type": "limit", "ts": 5, "partition": "b", "algorithm": "aimd", "limit": 7, "ttl_ms": 60_000},
            {"type": "pulse", "ts": 5, "beats": 9},
            {"type": "pulse", "beats": 9}, {"type": "ail", "ts": 5, "beats": 1},
        ]  # fmt: skip
        for value in values:
            record = cast(Any, Record(orjson.dumps(value)))
            control._take(decisions_in(record, control._readers(), "p1", told.append))
        for work in enforcement.work():
            work.close()
        await enforcement.stop()
        return law

    try:
        law = asyncio.run(run())
    finally:
        for each in laws:
            LAWS.remove(each)
    assert (law.name, law.steps) == ("p1", ["look", "work", "stop"])
    assert [beats for beats in law.beats if beats] == [[7], [9]]
    assert len(told) == 2 and "beats" in told[0] and "mistake" in told[1]


class Stumbling(Hearts):
    """A third, whose first two looks meet a mistake."""

    look_s = 0.0
    work = EnforcerLaw.work

    def __init__(self, context: Context, accounts: object) -> None:
        super().__init__(context, accounts)
        self.looked = asyncio.Semaphore(0)

    def look(self) -> None:
        """See EnforcerLaw."""
        super().look()
        self.looked.release()
        if len(self.steps) <= 2:
            raise ValueError("stumbled")


async def test_a_law_that_met_a_mistake_looks_again(caplog: pytest.LogCaptureFixture) -> None:
    """Else what has become too old would stand until a restart; it is counted, and said once a minute."""
    metrics = Metrics(10)
    control = ControlPlane("p1", ProxySettings(), metrics, NOBODY, speaks="kafka")
    enforcement = Enforcement(control, [MutationQuotas, Stumbling])
    *others, stumbling = enforcement.work()
    for other in others:
        other.close()
    running = asyncio.create_task(stumbling)
    async with asyncio.timeout(5):
        for _ in range(4):
            await enforcement.of(Stumbling).looked.acquire()
    running.cancel()
    mistakes = sample_of(metrics.registry, "weir_proxy_bad_frames_total", {"reason": "internal"})
    assert (mistakes, caplog.text.count("met a mistake")) == (2.0, 1)
