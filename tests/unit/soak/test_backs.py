"""How long what befell a part took to be back (tests/soak)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import soak_backs
from soak_backs import Backs
from soak_history import History, Recorder
from soak_rig import _READY_PART
from soak_schedule import LONG, PROXIES, PULSAR, TARGETS, Fault


@pytest.fixture(autouse=True)
def _hand_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by waiting alone."""
    passed_s = [0.0]

    def sleep(for_s: float) -> None:
        passed_s[0] += for_s

    monkeypatch.setattr(soak_backs, "time", SimpleNamespace(monotonic=lambda: passed_s[0], sleep=sleep))
    monkeypatch.setattr(soak_backs, "now_ms", lambda: round(passed_s[0] * 1000))


class FakeRig:
    """Is back when a test says so, or when it was asked so often; one of its faults cannot be made."""

    def __init__(self, asks: int = 10**9) -> None:
        self.back, self._asks = False, asks

    def make(self, fault: Fault, draw: float) -> tuple[int | None, Any]:
        """See Rig."""
        if fault.what == "stop" or (fault.what == "down" and not self.back):
            raise LookupError("nobody")
        return (7 if fault.what == "kill" else None), lambda: None

    def there(self, target: str) -> bool:
        """See Rig, which knows these."""
        others = ("kafka", *PROXIES, *PULSAR)
        assert target in others or _READY_PART.get(target, target) in ("job", "admin", "collect")
        self._asks -= 1
        self.back |= self._asks < 0
        return self.back

    def decided(self) -> int:
        """See Rig."""
        return 1

    def look(self) -> None:
        """See Rig."""

    def sample(self) -> None:
        """See Rig."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a history."""
    return tmp_path / "history.jsonl"


@contextmanager
def watching(rig: FakeRig, file: Path) -> Iterator[Backs]:
    """What the faults of a rig do, while a history is written."""
    with Recorder(file) as told:
        yield Backs(rig, told, lambda _: None)  # type: ignore[arg-type]  # what it asks of a rig


def test_each_fault_is_back_under_its_own_name(file: Path) -> None:
    """The second one befell the part when it was not back from the first one."""
    rig = FakeRig()
    with watching(rig, file) as backs:
        for fault in (Fault(0, "cut", "client-one", 0.1), Fault(1, "stop", "one"), Fault(2, "kill", "one")):
            backs.befall(fault, 0.5)
        rig.back = True
        backs.wait(soak_backs.time.monotonic() + 60, backs.all_back)
    history = History.read(file)

    back = [(one["what"], one["target"]) for one in history["back"]]
    assert back == [("cut", "client-one"), ("kill", "one")]
    assert history["back"][0]["took_s"] > history["back"][1]["took_s"] > 0
    assert [(one["what"], one["pid"]) for one in history["fault"]] == [("cut", None), ("kill", 7)]
    assert history["fault"][0]["ended"] - history["fault"][0]["begun"] >= 100
    assert [(one["what"], one["target"]) for one in history["not_done"]] == [("stop", "one")]


def test_others_happen_beside_what_lasts_long(file: Path) -> None:
    """It ends in its time, and is back after that."""
    rig = FakeRig()
    rig.back = True
    with watching(rig, file) as backs:
        backs.befall(Fault(0, "down", "admin", 0.3, beside=True), 0.5)
        backs.befall(Fault(1, "kill", "one"), 0.5)
        backs.wait(soak_backs.time.monotonic() + 60, backs.all_back)
    history = History.read(file)

    assert [(one["what"], one["target"]) for one in history["fault"]] == [("kill", "one"), ("down", "admin")]
    assert {one["target"] for one in history["back"]} == {"one", "admin"}
    assert history["fault"][1]["ended"] - history["fault"][1]["begun"] >= 300


def test_what_lasts_long_befalls_a_part_that_is_there(file: Path) -> None:
    """It comes once: right after a kill there would be nobody."""
    with watching(FakeRig(2), file) as backs:
        for fault in (Fault(0, "kill", "admin"), Fault(2, "down", "admin", LONG["down", "admin"], True)):
            backs.befall(fault, 0.5)
    history = History.read(file)

    assert [one["what"] for one in history["back"]] == ["kill"]
    assert history["not_done"] == []


@pytest.mark.parametrize("target", sorted({target for every in TARGETS.values() for target in every}))
def test_whatever_is_waited_for_is_asked_for_by_a_name_that_is_known(file: Path, target: str) -> None:
    """All brokers are Kafka, the JVM is of the job."""
    rig = FakeRig(0)
    with watching(rig, file) as backs:
        for _ in range(2):
            backs.befall(Fault(0, "stop", target), 0.5)
    assert rig.back


def test_what_is_not_back_in_time_is_given_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And said to be so."""
    monkeypatch.setattr(soak_backs, "BACK_S", -1.0)
    with watching(FakeRig(), file) as backs:
        backs.befall(Fault(0, "kill", "admin"), 0.5)
        backs.wait(soak_backs.time.monotonic() + 60, backs.all_back)

    assert [one["took_s"] for one in History.read(file)["back"]] == [None]


def test_what_is_befallen_again_has_not_been_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time runs from the newest fault; how long it took, from each."""
    monkeypatch.setattr(soak_backs, "BACK_S", 10.0)
    rig = FakeRig()
    with watching(rig, file) as backs:
        for _ in range(3):
            backs.befall(Fault(0, "kill", "cluster"), 0.5)
            backs.wait(soak_backs.time.monotonic() + 8)
        rig.back = True
        backs.wait(soak_backs.time.monotonic() + 60, backs.all_back)
    assert [round(one["took_s"]) for one in History.read(file)["back"]] == [26, 17, 8]


@pytest.mark.parametrize(("target", "given_up"), [("job", False), ("admin", True)])
def test_the_time_of_the_job_does_not_run_without_kafka(
    file: Path, monkeypatch: pytest.MonkeyPatch, target: str, given_up: bool
) -> None:
    """It cannot decide meanwhile; others have nothing to do with it."""
    monkeypatch.setattr(soak_backs, "BACK_S", 1.0)
    monkeypatch.setattr(soak_backs, "POLL_S", 0.05)
    rig = FakeRig()
    with watching(rig, file) as backs:
        backs.befall(Fault(0, "kill", target), 0.5)
        # As one that lasts; it is back at once.
        monkeypatch.setattr(rig, "there", lambda at: at == "kafka")
        backs.befall(Fault(1, "cut", "cluster", 1.5), 0.5)
        assert (backs._due.keys() == {soak_backs.KAFKA}) == given_up
        backs.wait(soak_backs.time.monotonic() + 60, backs.all_back)
    back = {one["target"]: one["took_s"] for one in History.read(file)["back"]}
    assert back == {target: None, "cluster": back["cluster"]} and back["cluster"] is not None


def test_a_fault_that_could_not_be_made_is_waited_for_the_next_time(file: Path) -> None:
    """Once: else the job, killed each minute, would never be stopped."""
    rig = FakeRig(2)
    with watching(rig, file) as backs:
        for what, for_s in ("kill", 0.0), ("down", 1.0), ("down", 0.1):
            backs.befall(Fault(0, what, "admin", for_s), 0.5)
    history = History.read(file)
    assert [one["what"] for one in history["not_done"]] == ["down"]
    assert [one["what"] for one in history["fault"]] == ["kill", "down"]
