"""Dispatch limits on real traffic: Kafka, the job, one or two `weir proxy`, real consumers; figures printed.

Rates are those that the consumers see, from the beginning of one period's burst to that of another.
"""

import signal
import time
from contextlib import ExitStack

import pytest
from cluster_kit import fresh
from company_kit import Company
from exam_kit import Say
from proxy_kit import until
from reading_kit import Reading, fill

pytestmark = pytest.mark.soak
LOOK_S = 20.0
RATE = 100
WITHIN = 0.02
WITHIN_SEVERAL = 0.05


def arranged(company: Company, *names: str, partitions: int = 1) -> tuple[str, str]:
    """A topic with records and its rate, in force everywhere, and a group; just these proxies run."""
    topic = fresh("paced")
    fill(company.kafka.bootstrap, topic, 20_000, partitions=partitions)
    company.only(*names)
    rate = {"dispatchThrottlingRateInMsg": RATE}
    company.put(f"topics.persistent://public/default/{topic}", {"subscriptionDispatchRate": rate})
    time.sleep(3)
    return topic, fresh("group")


def seen(*readers: Reading) -> float:
    """What comes to all of them a second, once it has settled.

    Counted over whole periods: what is left at a decision comes apart from a period's burst.
    """
    until(lambda: all(reader.came for reader in readers), 60, "all read")
    time.sleep(5)
    before, since = sum(len(reader.came) for reader in readers), time.monotonic()
    time.sleep(LOOK_S)
    return (sum(len(reader.came) for reader in readers) - before) / (time.monotonic() - since)


def once_and_in_order(reading: Reading, topic: str) -> bool:
    """Whether what came of a topic is its beginning, each record once."""
    parts = [numbers for (name, _), numbers in reading.numbers.items() if name == topic]
    return all(set(each.values()) == {1} and max(each) == len(each) - 1 for each in parts)


def test_two_proxies_hold_one_limit(company: Company, say: Say) -> None:
    """A consumer of the group at each of two proxies: together at the rate, within 5 %."""
    topic, group = arranged(company, "one", "two", partitions=2)
    with ExitStack() as running:
        readers = [
            running.enter_context(Reading(proxy.bootstrap, group, [topic]))
            for proxy in company.proxies.values()
        ]
        rate = seen(*readers)
        parts = [reader.rate(topic, LOOK_S) for reader in readers]
    say(f"two proxies: {rate:.1f} msg/s together of {RATE}, {parts[0]:.1f} and {parts[1]:.1f}")
    assert abs(rate / RATE - 1) <= WITHIN_SEVERAL
    assert all(part > RATE / 10 for part in parts)
    assert all(once_and_in_order(reader, topic) for reader in readers)


def test_a_lone_reader_has_the_rate_of_three_proxies(company: Company, say: Say) -> None:
    """Parts follow who delivers: of three proxies the one that has a consumer uses the rate, within 5 %."""
    topic, group = arranged(company, "one", "two", "three")
    with Reading(company.proxies["one"].bootstrap, group, [topic]) as reader:
        rate = seen(reader)
    say(f"a consumer at one of three proxies: {rate:.1f} msg/s of {RATE}")
    assert abs(rate / RATE - 1) <= WITHIN_SEVERAL
    assert once_and_in_order(reader, topic)


def test_the_job_may_be_away(company: Company, say: Say) -> None:
    """A lone proxy goes on at the rate while the job is dead, and agrees with it when it is back."""
    topic, group = arranged(company, "one")
    with Reading(company.proxies["one"].bootstrap, group, [topic]) as reader:
        until(lambda: reader.came, 60, "it reads")
        company.job.end(signal.SIGKILL)
        time.sleep(LOOK_S)
        away = reader.rate(topic, LOOK_S - 2)
        company.job.start()
        time.sleep(LOOK_S)
        back = reader.rate(topic, LOOK_S / 2)
    say(f"without the job {away:.1f} msg/s, with it again {back:.1f}, of {RATE}")
    assert abs(away / RATE - 1) <= WITHIN
    assert abs(back / RATE - 1) <= WITHIN
    assert once_and_in_order(reader, topic)
