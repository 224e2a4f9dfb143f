"""What is noted of proxies' metrics (tests/soak)."""

from pathlib import Path
from typing import Any

import pytest
import soak_counts
from soak_counts import Counts, slots
from soak_history import History, Recorder


def page(monkeypatch: pytest.MonkeyPatch, **series: float) -> None:
    """The metrics of a part say this."""
    monkeypatch.setattr(soak_counts, "series_at", lambda url, _: series if url == "http://m/metrics" else {})


def test_what_has_grown_is_noted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By each process anew."""
    with Recorder(tmp_path / "h") as told:
        counts = Counts(told)
        for count in (0, 2, 2, 5):
            page(monkeypatch, weir_unacknowledged_answers_total=count)
            counts.look("one", 7, "m", 1)
        page(monkeypatch, **{'weir_concurrency_slots_expired_total{partition="broker-1"}': 1})
        counts.look("one", 8, "m", 1)

    noted = History.read(tmp_path / "h")
    assert [(one["pid"], one["count"]) for one in noted["doubt"]] == [(7, 2), (7, 3)]
    assert [(one["part"], one["pid"], one["count"]) for one in noted["expired"]] == [("one", 8, 1)]


def test_the_version_of_the_policies_is_noted_where_it_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None of a part that says nothing."""
    with Recorder(tmp_path / "h") as told:
        counts = Counts(told)
        for version in (0, 1, 1, 12):
            page(monkeypatch, weir_proxy_policy_version=version)
            counts.look("one", 7, "m", 1)
        page(monkeypatch)
        counts.look("one", 7, "m", 1)

    noted = History.read(tmp_path / "h")["policies"]
    assert [(one["part"], one["pid"], one["version"]) for one in noted] == [("one", 7, n) for n in (0, 1, 12)]


def test_slots_of_all_brokers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not answer says nothing."""
    taken, waiting = "zeebe_backpressure_inflight_requests_count", "weir_concurrency_queue_length"
    series = {f'{taken}{{partition="broker-1"}}': 2, f'{taken}{{partition="broker-2"}}': 1, waiting: 4}
    page(monkeypatch, **series)
    assert slots("m", 1) == (3, 4)

    def silent(*_: object) -> Any:
        raise TimeoutError

    monkeypatch.setattr(soak_counts, "series_at", silent)
    assert slots("m", 1) is None
