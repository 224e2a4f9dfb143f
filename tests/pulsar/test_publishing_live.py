"""SENDs through two proxies with the real job: shares, concurrency limits, and a replay of the record."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from company_kit import Company
from publishing_clients import Driving, drive_pulsar
from pulsar_kit import Admin, fresh
from pulsar_proxy_kit import PulsarThread, joined
from stack_kit import read_all, replayed

from enforcer.laws.concurrency.limits import ConcurrencyLimits
from weir.stack.pulsar import LocalPulsar

pytestmark = pytest.mark.soak
RATE = 300
LIMITER = {"algorithm": "aimd", "useWindowed": False, "aimd": {"initialLimit": 20, "maxLimit": 40}}


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Kafka and the job; rounds last a second."""
    with Company(tmp_path_factory.mktemp("live")) as running:
        running.put("broker", {"resourceUsagePublishIntervalInSecs": 1})
        yield running


@pytest.fixture(scope="module")
def proxies(company: Company, pulsar: LocalPulsar) -> Iterator[list[PulsarThread]]:
    """Two of them before the one broker."""
    with ExitStack() as stack:
        yield [stack.enter_context(joined(company, pulsar, name)) for name in ("p1", "p2")]


def test_two_proxies_with_the_job(
    company: Company, proxies: list[PulsarThread], pulsar: LocalPulsar, admin: Admin, tmp_path: Path
) -> None:
    """A group over two namespaces has its limit within 3 % over 30 s, and each proxy its fair part; slots are
    told and limited, and a dump replays to what was decided.
    """
    namespaces, group = [admin.namespace(f"public/{fresh('live')}") for _ in proxies], fresh("live")
    partition = f"pulsar-{pulsar.service}"
    company.put(f"resourcegroups.{group}", {"publishRateInMsgs": RATE})
    for namespace in namespaces:
        company.put(f"namespaces.{namespace}", {"resourcegroup": group})
    company.put(f"backpressure.partitions.{partition}", LIMITER)
    for proxy in proxies:
        proxy.await_part(0.5)
    drives = [
        partial(drive_pulsar, proxy.bootstrap, f"persistent://{namespace}/t")
        for namespace, proxy in zip(namespaces, proxies, strict=True)
    ]
    with Driving(*drives) as driving:
        assert min(driving.hold(RATE, settle_s=20)) > 0.4 * RATE
    known = proxies[0].proxy.enforcement.of(ConcurrencyLimits).partitions.known[partition]
    assert known.limiter.samples.sent > 100
    assert sum(known.in_force.changes.values()) > 0
    time.sleep(3)
    live = decided(read_all(company.kafka.bootstrap, company.topics.decisions))
    again = decided(replayed(company.kafka.bootstrap, tmp_path, limit_s=300))
    assert {kind for kind, _ in live} >= {"share", "limit"}
    assert live == {name: again[name] for name in live}


def decided(values: Sequence[bytes]) -> dict[tuple[str, str], Any]:
    """Shares and limits by their ids."""
    found = [orjson.loads(value) for value in values]
    return {
        (each["type"], each["id"]): each
        for each in found
        if each["type"] in ("share", "limit") and "repeat" not in each
    }
