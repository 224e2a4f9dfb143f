"""Backlogs on a real Kafka, through `weir up`: looked at, decided by the job, evicted by the collector."""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from live_backlogs import EVICTS, LIMIT, WAIT_S, Backlogs, full
from stack_kit import Up, read_all, until

from streaming.contract.topics import Topics


@pytest.mark.soak
@pytest.mark.parametrize("part", ["collect", "proxy", "job"])
def test_whoever_is_killed_in_the_middle_nothing_is_evicted_twice(tmp_path: Path, part: str) -> None:
    """kill -9 again and again while eighty topics are evicted from: each message goes once, counted."""
    policies = "version: 1\nbroker: {backlogQuotaCheckIntervalInSeconds: 1, preciseBacklogSize: true}\n"
    names = [f"acme.killed.t{number}" for number in range(80)]
    generator = random.Random(16)
    with Up(tmp_path, "--restart", policies=policies) as up:
        held = Backlogs(up.ready["kafka"], *names)
        held.write()
        held.commit("slow", 0)
        held.limit(EVICTS)
        for _ in range(4):
            held.await_action()
            time.sleep(generator.uniform(0.0, 0.03))
            told = dict(up.ready)
            os.kill(up.pid(part), signal.SIGKILL)
            held.write(60)
            up.wait_ready(newer_than=told)
        until(lambda: all_within(held), what="all within their limit", limit_s=3 * WAIT_S)
        until(lambda: all_ended(held), what="the ends of all actions", limit_s=WAIT_S)
        offsets = held.committed("slow")
        for topic, offset in zip(names, offsets, strict=True):
            check_log(held.actions(topic), offset)
            assert held.read(topic, offset) == 340 - offset
        planned = furthest(read_all(up.ready["kafka"], Topics().decisions))
        assert all(offset <= planned[full(topic)] for topic, offset in zip(names, offsets, strict=True))


def all_within(held: Backlogs) -> bool:
    """Whether no group is further behind than its topic's quota lets it, records of 170 bytes, but for one.

    Kafka tells offsets and bytes one after the other: those of a stretch may be off while it is written.
    """
    return all(340 - offset <= LIMIT // 170 + 1 for offset in held.committed("slow"))


def all_ended(held: Backlogs) -> bool:
    """Whether every action that was begun has an end."""
    steps: dict[str, list[str]] = defaultdict(list)
    for topic in held.topics:
        for action in held.actions(topic):
            steps[action["id"].rpartition("/")[0]].append(action["step"])
    return all(one[-1] in ("done", "failed") for one in steps.values())


def check_log(actions: Sequence[dict[str, Any]], offset: int) -> None:
    """What was done covers all up to an offset, each place once."""
    ends: dict[str, list[str]] = defaultdict(list)
    done = []
    for action in actions:
        if action["step"] == "begun":
            continue
        ends[action["id"].rpartition("/")[0]].append(action["step"])
        if action["step"] == "done":
            done.append(action)
    assert all(len(steps) == 1 for steps in ends.values()), ends
    at = 0
    for action in sorted(done, key=lambda one: next_of(one["since"])):
        assert next_of(action["since"]) == at, actions
        at = next_of(action["upto"])
        assert action["messages"] == at - next_of(action["since"])
    assert at == offset


def next_of(position: dict[str, int]) -> int:
    """The offset behind a position."""
    return position["ledger"] + position["entry"] + 1


def furthest(values: Sequence[bytes]) -> dict[str, int]:
    """The offset behind the furthest place that was planned, by topic."""
    found: dict[str, int] = {}
    for decision in map(orjson.loads, values):
        if decision["type"] == "backlog":
            for line in decision["evict"]:
                found[decision["topic"]] = max(found.get(decision["topic"], 0), next_of(line))
    return found
