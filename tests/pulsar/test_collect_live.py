"""`weir collect pulsar --push` with a real Kafka, job and Pulsar: what is lost without a proxy, measured.

What was measured is printed; docs/pulsar/without_proxy.md has it.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from company_kit import Company
from exam_kit import Say
from hungry_publishers import Publisher, publishing
from process_kit import Command
from pulsar_kit import Admin, fresh

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
LIMIT = 100
ROUND_S = 5


@dataclass(frozen=True, slots=True)
class Stack:
    """Kafka with a job, beside the session's Pulsar."""

    company: Company
    pulsar: LocalPulsar
    folder: Path

    def collector(self, name: str, *words: str) -> Command:
        """Start one; it has done its first round then."""
        words = ("collect", "pulsar", "--kafka", self.company.kafka.bootstrap, "--push", *words)
        command = Command(self.folder / name, *words, collect_pulsar={"admin": self.pulsar.admin})
        assert command.ready()["pid"] == command.process.pid
        return command


@pytest.fixture(scope="module")
def stack(pulsar: LocalPulsar, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for all tests."""
    folder = tmp_path_factory.mktemp("collect")
    with Company(folder) as company:
        company.put("broker", {"resourceUsagePublishIntervalInSecs": ROUND_S})
        yield Stack(company, pulsar, folder)


def total(publishers: list[Publisher], began: float, seconds: int) -> list[int]:
    """Of all of them, by second."""
    return [
        sum(counts) for counts in zip(*(one.per_second(began, seconds) for one in publishers), strict=True)
    ]


def test_a_group_of_three_topics(stack: Stack, admin: Admin, say: Say) -> None:
    """10, 400 and 400 wanted of 100: together never above it for long, and near it once settled."""
    namespace = admin.namespace(f"{fresh('live')}/orders")
    group = fresh("gold")
    stack.company.put(f"resourcegroups.{group}", {"publishRateInMsgs": LIMIT})
    stack.company.put(f"namespaces.{namespace}", {"resourcegroup": group})
    wishes = {"small": 10.0, "hungry1": 400.0, "hungry2": 400.0}
    with ExitStack() as running:
        publishers = [
            running.enter_context(publishing(stack.pulsar.service, f"persistent://{namespace}/{name}", rate))
            for name, rate in wishes.items()
        ]
        began = time.monotonic()
        collector = running.enter_context(stack.collector("first"))
        started = time.monotonic() - began
        time.sleep(60.0)
        seconds = total(publishers, began, int(time.monotonic() - began))
        effect = next(n for n, count in enumerate(seconds) if count < 2 * LIMIT) - started
        settled = seconds[-20:]
        say(f"in force {effect:.1f} s after the first reading; {seconds}")
        parts = [sum(one.per_second(time.monotonic() - 21, 20)) / 20 for one in publishers]
        say(f"last 20 s: {min(settled)} to {max(settled)}, mean {sum(settled) / 20:.1f}, by topic {parts}")
        assert 0.85 * LIMIT <= sum(settled) / 20 <= 1.1 * LIMIT
        changed = time.monotonic()
        stack.company.put(f"resourcegroups.{group}", {"publishRateInMsgs": 2 * LIMIT})
        time.sleep(40.0)
        after = total(publishers, changed, 40)
        reached = next(n for n, count in enumerate(after) if count >= 1.5 * LIMIT)
        say(f"doubled: after {reached} s; {after}")
        assert reached <= 2.0 + 2 * ROUND_S + 10.0
        assert 0.85 * 2 * LIMIT <= sum(after[-10:]) / 10 <= 1.1 * 2 * LIMIT
        # A second collector takes over, and the first one ends and says so; limits stay as they are.
        second = running.enter_context(stack.collector("second", "--metrics", "127.0.0.1:0"))
        assert collector.process.wait(30.0) == 3
        assert "another collector has taken over" in collector.log.read_text()
        time.sleep(3 * ROUND_S)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(15.0) == 0
        assert "stay in force" in second.log.read_text()
        assert 0.85 * 2 * LIMIT <= sum(total(publishers, time.monotonic() - 5, 5)) / 5 <= 1.15 * 2 * LIMIT
    assert admin.do("GET", f"namespaces/{namespace}/publishRate")["publishThrottlingRateInMsg"] == LIMIT / 10
