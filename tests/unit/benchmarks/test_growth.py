"""The benchmark of growth: the worker that it measures, and what its table says of what was measured."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.growth import Series
from benchmarks.load import rounds
from benchmarks.load.events import POLICIES, T0, packed_by
from benchmarks.load.rounds import ROUND_MS, Cluster
from benchmarks.spark.lone_worker import LoneWorker, apart
from streaming.contract.errors import WeirError
from streaming.job import schemas


def test_a_round_comes_out_of_the_lone_worker(tmp_path: Path) -> None:
    """All shares of both shards leave with the tick, none before; the next round finds its state."""
    cluster, worker = Cluster(groups=200, brokers=10, spread=5), LoneWorker(tmp_path, rounds.POLICIES, 2)
    written = []
    for number in range(2):
        reports = [(schemas.PACKED_USAGE, value) for _, value in cluster.reports(number, packed=True)]
        assert worker.take(reports, cluster.begin(number)).written == 0
        tick = [(schemas.USAGE, cluster.tick(number))]
        written.append(worker.take(tick, cluster.begin(number) + ROUND_MS).written)
    # Of 1,000 entries, each with the name of its group.
    assert min(written) > 1000 * 5 and written[1] == pytest.approx(written[0], rel=0.5)


def test_state_is_what_the_newest_batch_names(tmp_path: Path) -> None:
    """Segments count, those that were merged into others do not; it grows with those known."""
    worker, sizes = LoneWorker(tmp_path, POLICIES, 1), []
    for number in range(5):
        who = np.arange(number * 3000, (number + 1) * 3000)
        packed = [(schemas.PACKED_EVENT, value) for value in packed_by(who, name="t")]
        taken = worker.take(packed, T0 + number)
        assert taken.written > 3000 and taken.seconds > 0
        sizes.append(worker.state_bytes())
    there = sum(file.stat().st_size for file in tmp_path.rglob("*.arrow"))
    assert sizes == sorted(sizes) and 3000 * 5 * 40 < sizes[-1] < there


def test_refused_events_are_no_measurement(tmp_path: Path) -> None:
    """What a dead letter costs says nothing of growth."""
    with pytest.raises(WeirError, match="a dead letter: "):
        LoneWorker(tmp_path, POLICIES, 1).take([(schemas.PACKED_EVENT, b"none")], T0)


def test_a_point_has_a_process_of_its_own() -> None:
    """So its memory is nobody else's, and what it raises is heard."""
    assert apart(os.getpid) not in (os.getpid(), apart(os.getpid))
    with pytest.raises(ZeroDivisionError):
        apart(divmod, 1, 0)


def test_each_point_stands_beside_the_one_before() -> None:
    """The first beside none; what is aimed at stands in rows of its own."""
    points = {
        size: {"a batch, ms": took, "state, MB": size / 10_000}
        for size, took in ((10_000, 4.0), (growth.AIMED_AT, 6.0), (10_000_000, 7.0))
    }
    others = Series(axis="proxies", case="9 groups, {} proxies", points={1: {"a round, s": 0.5}})
    rows = growth.rows([Series(axis="principals", case="{} known", points=points), others])
    assert [(row.what, row.value, row.unit, row.baseline) for row in rows[:2] + rows[4:]] == [
        ("10,000 known: a batch", 4.0, "ms", None),
        ("10,000 known: state", 1.0, "MB", None),
        ("10,000,000 known: a batch", 7.0, "ms", 6.0),
        ("10,000,000 known: state", 1000.0, "MB", 100.0),
        ("9 groups, 1 proxies: a round", 0.5, "s", None),
        ("state per principal", 100.0, "bytes", None),
        ("a batch, 1,000,000 principals known", 6.0, "ms", 4.0),
    ]
    aims = [(row.target, row.met) for row in rows if row.target]
    assert aims == [("< 150 bytes", True), ("<= 1.25 x", False)]
