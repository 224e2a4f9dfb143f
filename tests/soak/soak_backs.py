"""What was befallen and is not back yet."""

import time
from collections.abc import Callable
from dataclasses import asdict

from soak_history import Recorder, now_ms
from soak_rig import Rig
from soak_schedule import PROXIES, PULSAR, Fault, kind_of

from streaming.contract.errors import WeirError

BACK_S = 300.0
"""From the newest that befell it: one that is befallen again before it is back has not been back."""
SAMPLE_S, POLL_S = 2.0, 0.5
KAFKA, DECIDING = "kafka", "decisions"
"""What is back with the job and all around it: new decisions are there."""


class Backs:
    """Makes faults, and notes how long each took to be back; looks after the parts meanwhile.

    Args:
        rig: whose parts.
        told: takes what came of it.
        say: takes lines for people.
    """

    def __init__(self, rig: Rig, told: Recorder, say: Callable[[str], None]) -> None:
        self._rig, self._told, self._say = rig, told, say
        # By what is seen from outside: what befell it, each with its end and how long Kafka had been away by
        # then; decisions at the newest one.
        self._due: dict[str, tuple[list[tuple[Fault, float, float]], int]] = {}
        self._without_kafka_s, self._looked = 0.0, time.monotonic()
        # What is befallen now, and kinds of faults that were made, or could not be.
        self._befallen = ""
        self._made: set[tuple[str, str, bool]] = set()
        self._missed: set[tuple[str, str, bool]] = set()
        self._next_sample = 0.0
        # What lasts while others happen: until when, and its end.
        self._beside: list[tuple[float, Callable[[], None]]] = []

    def all_back(self) -> bool:
        """Whether nothing is befallen any more."""
        return not self._due and not self._beside

    def wait(self, until: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Until a time, or until it is enough."""
        while time.monotonic() < until and not enough():
            for one in [one for one in self._beside if one[0] <= time.monotonic()]:
                self._beside.remove(one)
                one[1]()
            self._rig.look()
            now, before = time.monotonic(), self._looked
            self._looked = now
            if KAFKA in self._due or self._befallen == KAFKA:
                self._without_kafka_s += now - before
            for target in list(self._due):
                self._look(target)
            if time.monotonic() >= self._next_sample:
                self._rig.sample()
                self._next_sample = time.monotonic() + SAMPLE_S
            time.sleep(max(0.0, min(POLL_S, until - time.monotonic())))

    def befall(self, fault: Fault, draw: float) -> None:
        """Make a fault and end it, or have it end while others happen."""
        what = f"{fault.what} {fault.target}" + (f" for {fault.for_s} s" if fault.for_s else "")
        kind = kind_of(asdict(fault))
        if kind[2] or kind in self._missed:
            # It comes once, or once more: a part that is not back from the fault before cannot be killed or
            # stopped.
            self.wait(time.monotonic() + BACK_S, lambda: self._is_there(fault.target))
        begun = now_ms()
        try:
            pid, end = self._rig.make(fault, draw)
        except (OSError, LookupError, AssertionError, WeirError) as error:
            self._say(f"{what}: not done ({error!r})")
            self._told.note("not_done", what=fault.what, target=fault.target, why=repr(error))
            if kind not in self._made:
                self._missed.add(kind)
            return
        self._made.add(kind)
        self._missed.discard(kind)
        self._say(what)

        def over() -> None:
            end()
            # What is looked after in between may take longer than the fault was to last.
            self._told.note("fault", **asdict(fault), begun=begun, ended=now_ms(), pid=pid)
            self._await(fault)

        if fault.beside:
            self._beside.append((time.monotonic() + fault.for_s, over))
            return
        self._befallen = reached(fault.target)
        try:
            self.wait(time.monotonic() + fault.for_s)
        finally:
            self._befallen = ""
            over()

    def _is_there(self, target: str) -> bool:
        part = reached(target)
        return part not in self._due and self._rig.there(target if part == DECIDING else part)

    def _await(self, fault: Fault) -> None:
        ended = time.monotonic()
        # What was on its way is written by then.
        time.sleep(0.5)
        if fault.what != "policy":
            target = reached(fault.target)
            before, _ = self._due.get(target, ([], 0))
            due = fault, ended, self._without_kafka_s
            self._due[target] = [*before, due], self._rig.decided()

    def _look(self, target: str) -> None:
        faults, decided = self._due.pop(target)
        now = self._rig.decided() if target == DECIDING else 0
        there = now > decided >= 0 if target == DECIDING else self._rig.there(target)
        _, newest, before_s = faults[-1]
        # The job cannot decide without.
        without_s = self._without_kafka_s - before_s if target == DECIDING else 0.0
        if not there and time.monotonic() - newest - without_s <= BACK_S:
            # Where Kafka was away, what is decided from now on counts.
            self._due[target] = faults, now if decided < 0 else decided
            return
        for fault, ended, _ in faults:
            took_s = time.monotonic() - ended
            said = f"back after {took_s:.1f} s" if there else f"not back after {took_s:.0f} s"
            self._told.note(
                "back", what=fault.what, target=fault.target, at=now_ms(), took_s=took_s if there else None
            )
            self._say(f"{fault.what} {fault.target}: {said}")


def reached(target: str) -> str:
    """What is to be seen from outside again."""
    if target in ("controller", "cluster", "changed"):
        return KAFKA
    seen, proxy = (KAFKA, "admin", "collect", *PULSAR), target.rpartition("-")[2]
    return proxy if proxy in PROXIES else target if target in seen else DECIDING
