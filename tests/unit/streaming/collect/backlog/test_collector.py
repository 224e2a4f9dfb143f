"""Checks: what is looked at, how often, and what becomes of one that fails."""

import asyncio
import time
from typing import Any

import pytest
from collector_kit import EVICTS, NAME, TOPIC, Desk, FakeCluster, policies, rig
from waiting_kit import until

from streaming.collect.backlog import collector as module
from streaming.collect.backlog.cluster import RoundQuestion, RoundResult
from streaming.collect.backlog.collector import Outcome
from streaming.contract.errors import TakenOver, WeirError


class Asked(FakeCluster):
    """Notes what is wanted."""

    wants: RoundQuestion

    async def look(self, wants: RoundQuestion) -> RoundResult:
        self.wants = wants
        return await super().look(wants)


async def test_reports_are_named_and_written() -> None:
    desk = Desk(FakeCluster(a=1), name="c-1")
    await desk.check()
    await desk.check()
    assert [[one.id for one in reports] for reports in desk.written] == [["c-1-1.0"], ["c-1-2.0"]]
    assert desk.value("weir_backlog_rounds_total", result="done") == 2
    assert desk.value("weir_backlog_reports_total") == 2
    count = "pulsar_storage_backlog_quota_check_duration_seconds_count"
    assert desk.value(count, cluster="c1") == 2


@pytest.mark.parametrize(
    ("time_quota", "precise", "expires"),
    [
        ({"limitTime": 5, "policy": "consumer_backlog_eviction"}, True, True),
        ({"limitTime": 5, "policy": "producer_exception"}, False, False),
        (None, False, False),
    ],
)
async def test_what_is_wanted_follows_from_the_policies(
    time_quota: dict[str, Any] | None, precise: bool, expires: bool
) -> None:
    cluster = Asked(a=1)
    entries = policies(EVICTS, time_quota, preciseTimeBasedBacklogQuotaCheck=precise)
    await Desk(cluster, entries).check()
    assert cluster.wants.precise_age == precise
    assert cluster.wants.expires(TOPIC) == expires
    assert not cluster.wants.expires("persistent://acme/orders/other")


@pytest.mark.parametrize("error", [WeirError("no answer"), KeyError("defect")])
async def test_a_cluster_that_cannot_be_read_is_looked_at_again(error: Exception) -> None:
    cluster, desk = rig(a=1)
    cluster.before["look"] = error
    assert await desk.collector.check() is Outcome.UNREAD
    cluster.before.clear()
    assert await desk.collector.check() is Outcome.DONE
    assert desk.value("weir_backlog_rounds_total", result="unread") == 1


async def test_topics_of_a_check_that_failed_count_as_unread() -> None:
    """All that are known; the number stayed as it was, mostly 0, for as long as the cluster was away."""
    cluster, desk = rig(a=1)
    await desk.check()
    assert desk.value("weir_backlog_unread_topics") == 0
    cluster.before["look"] = WeirError("no answer")
    await desk.check()
    assert desk.value("weir_backlog_unread_topics") == 1
    cluster.before.clear()
    await desk.check()
    assert desk.value("weir_backlog_unread_topics") == 0
    desk.write_fails = [WeirError("Kafka is away"), TakenOver("another one")]
    await desk.check()
    assert desk.value("weir_backlog_unread_topics") == 1
    with pytest.raises(TakenOver):
        await desk.collector.run(lambda: None)
    assert desk.value("weir_backlog_unread_topics") == 0


async def test_publish_times_that_were_missed_are_counted() -> None:
    class Late(FakeCluster):
        async def look(self, wants: RoundQuestion) -> RoundResult:
            return RoundResult(publish_times_missed=3)

    desk = Desk(Late())
    await desk.check()
    await desk.check()
    assert desk.value("weir_backlog_publish_times_missed_total") == 6


@pytest.mark.parametrize("error", [WeirError("Kafka is away"), OverflowError("a number")])
async def test_reports_that_are_not_written_are_given_up(error: Exception) -> None:
    desk = Desk(FakeCluster(a=1))
    desk.write_fails = [error]
    assert await desk.collector.check() is Outcome.UNREPORTED
    assert await desk.collector.check() is Outcome.DONE
    assert [one.id for one in desk.written[0]] == [f"{NAME}-2.0"]
    desk.write_fails = [TakenOver("another one")]
    with pytest.raises(TakenOver):
        await desk.collector.check()


async def test_checks_follow_the_interval_that_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shorter one counts from now on, and one check never begins before the last has ended."""
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    cluster = FakeCluster(a=90)
    desk = Desk(cluster, policies(backlogQuotaCheckIntervalInSeconds=60))
    looking = 0
    begun: list[float] = []
    checked: list[None] = []

    async def one_at_a_time() -> None:
        nonlocal looking
        begun.append(time.monotonic())
        looking += 1
        assert looking == 1
        await asyncio.sleep(0.01)
        looking -= 1

    cluster.before["look"] = one_at_a_time
    task = asyncio.create_task(desk.collector.run(lambda: checked.append(None)))
    await until(lambda: len(checked) == 1)
    await asyncio.sleep(0.05)
    assert len(checked) == 1
    desk.entries = policies(backlogQuotaCheckIntervalInSeconds=1)
    await until(lambda: len(checked) == 3)
    assert begun[2] - begun[1] > 0.9
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_check_that_takes_too_long_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute in the log, each time in the metric."""
    monkeypatch.setattr(module, "check_interval_s", lambda _policies: 0.001)
    cluster, desk = rig(a=90)
    done = 0

    def checked() -> None:
        nonlocal done
        done += 1

    cluster.before["look"] = lambda: asyncio.sleep(0.005)
    task = asyncio.create_task(desk.collector.run(checked))
    await until(lambda: done >= 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert desk.value("weir_backlog_behind_total") >= 3
    assert sum("falls behind" in line for line in caplog.messages) == 1


async def test_failures_are_said_once_a_minute_and_few(caplog: pytest.LogCaptureFixture) -> None:
    class Partly(FakeCluster):
        async def look(self, wants: RoundQuestion) -> RoundResult:
            looked = await super().look(wants)
            looked.unread, looked.failures = 9, [f"no leader {number}\x1b" for number in (0, *range(9))]
            return looked

    desk = Desk(Partly(a=1))
    await desk.check()
    await desk.check()
    told = [line for line in caplog.messages if "no leader" in line]
    assert len(told) == 5 and "\x1b" not in "".join(told)
    assert told[0].endswith("(2 times)")
    assert sum("4 further failures" in line for line in caplog.messages) == 1
    assert desk.value("weir_backlog_unread_topics") == 9


async def test_reports_that_are_too_large_count_as_unread(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(FakeCluster(a=1))

    async def write(_reports: object) -> list[str]:
        return ["persistent://a/b/large"]

    desk.collector._write = write
    await desk.check()
    assert desk.value("weir_backlog_unread_topics") == 1
    assert desk.value("weir_backlog_too_large_reports_total") == 1
    assert any("persistent://a/b/large" in line for line in caplog.messages)
