"""The benchmark of laws: each is measured with events that it takes."""

import io
from dataclasses import replace

import pytest

from benchmarks import laws
from benchmarks.kit.progress import Progress
from benchmarks.load.laws import LOADS
from streaming.contract.errors import WeirError
from streaming.laws.registry import LAWS


@pytest.fixture
def progress() -> Progress:
    """Heard by nobody."""
    return Progress(1, stream=io.StringIO())


def test_every_law_is_measured(monkeypatch: pytest.MonkeyPatch, progress: Progress) -> None:
    """Under each choice of its policies, its compiled part too if it has one; no law is named in between."""
    monkeypatch.setattr(laws, "_SMOKE_EVENTS", 50)
    result = laws.run(smoke=True, progress=progress)
    assert set(LOADS) == set(LAWS.by_name)
    measured = [row.what.partition(": ")[0] for row in result.rows if row.what.endswith(": whole step")]
    assert measured == [f"{law} {chosen}".strip() for law in LAWS.by_name for chosen in LOADS[law].policies]
    compiled = {row.what.split()[0].rstrip(":") for row in result.rows if row.what.endswith("compiled part")}
    assert compiled == {law for law in LAWS.by_name if LOADS[law].part is not None}
    aimed = {row.what for row in result.rows if row.target}
    packed = {row.what for row in result.rows if row.what.endswith("whole step, packed")}
    assert aimed == {"mutation token_bucket: compiled part"} | packed
    laws_packed = {what.split()[0].rstrip(":") for what in packed}
    assert laws_packed == {"mutation", "dispatch", "concurrency", "backlog"}
    assert all(row.value > 0 for row in result.rows)


def test_refused_events_are_no_measurement(monkeypatch: pytest.MonkeyPatch, progress: Progress) -> None:
    """What a dead letter costs says nothing of the law."""
    law = LAWS.reporting.name
    odd = replace(LOADS[law], make=lambda count: [b'{"type":"request","ts":0}'] * count)
    monkeypatch.setitem(LOADS, law, odd)
    with pytest.raises(WeirError, match=f"{law} refused an event: .*dead_letter"):
        laws.run(smoke=True, progress=progress)
