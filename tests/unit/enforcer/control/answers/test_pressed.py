"""Who is told to Prometheus by name: those that wait or are near their limit, and no more than have room."""

import pytest
from entity_kit import admission, decided, view
from prometheus_client import generate_latest

from enforcer.control.answers import shown
from enforcer.control.answers.shown import pressed
from enforcer.control.metrics import AdminMetrics

NOW = 1_795_166_668_375


def told(metrics: AdminMetrics) -> list[str]:
    """Series of entities as they are scraped."""
    lines = generate_latest(metrics.registry).decode().splitlines()
    return [line for line in lines if line.startswith("weir_entity")]


def test_who_waits_and_who_is_near_is_told_and_nobody_else() -> None:
    """The one held longest first; in shadow nobody waits."""
    made = view()
    decided(
        made,
        admission(NOW - 70_000, subject="user=late", tokens=-500.0, throttle_time_ms=100_000, rejected=["t"]),
        admission(NOW, subject="user=soon", tokens=-5.0, throttle_time_ms=1000, outcome="throttle"),
        admission(NOW, subject="user=near", tokens=2.0),
        admission(NOW, subject="user=idle", tokens=50.0),
        admission(NOW, subject="user=shadow", tokens=-5.0, throttle_time_ms=1000, shadow=True),
    )
    found, left = pressed(made, NOW)
    assert [each.labels for each in found] == [
        ("mutation", "user=late"), ("mutation", "user=soon"), ("mutation", "user=near")
    ]  # fmt: skip
    assert [each.held_s for each in found] == [70.0, 0.0, 0.0] and left == 0
    metrics = AdminMetrics()
    metrics.tell(found, left)
    assert 'weir_entity_throttled_seconds{entity="user=late",law="mutation"} 70.0' in told(metrics)
    assert not [line for line in told(metrics) if "idle" in line or "shadow" in line]
    metrics.tell((), 0)
    assert told(metrics) == []


def test_series_are_bounded_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those held longest stay."""
    monkeypatch.setattr(shown, "PRESSED_MAX", 2)
    made = view()
    for number in range(5):
        subject = f"user=u{number}"
        decided(made, admission(NOW - number, subject=subject, tokens=-5.0, throttle_time_ms=9000))
    found, left = pressed(made, NOW)
    assert [each.labels[1] for each in found] == ["user=u4", "user=u3"] and left == 3
    metrics = AdminMetrics()
    metrics.tell(found, left)
    assert "weir_admin_entities_untold 3.0" in generate_latest(metrics.registry).decode()
