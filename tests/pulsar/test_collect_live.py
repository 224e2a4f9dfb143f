"""`weir collect pulsar --push` with a real Kafka, job and Pulsar: what is lost without a proxy, measured.

What was measured is printed; docs/pulsar/without_proxy.md has it.
"""

import signal
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from company_kit import Company
from exam_kit import Say
from process_kit import Command
from proxy_kit import until
from publishing_clients import Driving, drive_pulsar
from pulsar_kit import Admin, fresh

from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
LIMIT = 100
ROUND_S = 5


def collecting(company: Company, pulsar: LocalPulsar, name: str, *words: str) -> Command:
    """A collector that has done its first round."""
    words = ("collect", "pulsar", "--kafka", company.kafka.bootstrap, "--push", *words)
    command = Command(company.folder / name, *words, collect_pulsar={"admin": pulsar.admin})
    assert command.ready()["pid"] == command.process.pid
    return command


def test_a_group_of_three_topics(pulsar: LocalPulsar, admin: Admin, say: Say, tmp_path: Path) -> None:
    """10, 400 and 400 wanted of 100: together never above it for long, and near it once settled."""
    namespace = admin.namespace(f"{fresh('live')}/orders")
    group = fresh("gold")
    wishes = {"small": 10.0, "hungry1": 400.0, "hungry2": 400.0}
    drive = partial(drive_pulsar, pulsar.service, max_pending_messages=50)
    drives = [partial(drive, f"persistent://{namespace}/{name}", rate=rate) for name, rate in wishes.items()]
    with Company(tmp_path) as company, Driving(*drives) as driving, ExitStack() as running:
        company.put("broker", {"resourceUsagePublishIntervalInSecs": ROUND_S})
        company.put(f"resourcegroups.{group}", {"publishRateInMsgs": LIMIT})
        company.put(f"namespaces.{namespace}", {"resourcegroup": group})
        until(lambda: all(driving.ended), what="a message of each")
        began = time.monotonic()
        collector = running.enter_context(collecting(company, pulsar, "first"))
        started = time.monotonic() - began
        time.sleep(60.0)
        seconds = driving.per_second(began, int(time.monotonic() - began))
        effect = next(n for n, count in enumerate(seconds) if count < 2 * LIMIT) - started
        settled = seconds[-20:]
        say(f"in force {effect:.1f} s after the first reading; {seconds}")
        since = time.monotonic() - 20
        parts = [sum(at >= since for at in list(each)) / 20 for each in driving.ended]
        say(f"last 20 s: {min(settled)} to {max(settled)}, mean {sum(settled) / 20:.1f}, by topic {parts}")
        assert 0.85 * LIMIT <= sum(settled) / 20 <= 1.1 * LIMIT
        changed = time.monotonic()
        company.put(f"resourcegroups.{group}", {"publishRateInMsgs": 2 * LIMIT})
        time.sleep(40.0)
        after = driving.per_second(changed, 40)
        reached = next(n for n, count in enumerate(after) if count >= 1.5 * LIMIT)
        say(f"doubled: after {reached} s; {after}")
        assert reached <= 2.0 + 2 * ROUND_S + 10.0
        assert 0.85 * 2 * LIMIT <= sum(after[-10:]) / 10 <= 1.1 * 2 * LIMIT
        # A second collector takes over, and the first one ends and says so; limits stay as they are.
        second = running.enter_context(collecting(company, pulsar, "second", "--metrics", "127.0.0.1:0"))
        assert collector.process.wait(30.0) == 3
        assert "another collector has taken over" in collector.log.read_text()
        time.sleep(3 * ROUND_S)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(15.0) == 0
        assert "stay in force" in second.log.read_text()
        assert 0.85 * 2 * LIMIT <= sum(driving.per_second(time.monotonic() - 5, 5)) / 5 <= 1.15 * 2 * LIMIT
    assert admin.do("GET", f"namespaces/{namespace}/publishRate")["publishThrottlingRateInMsg"] == LIMIT / 10
