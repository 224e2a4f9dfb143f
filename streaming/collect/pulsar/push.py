"""Pushes limits into Pulsar: only real changes, rarely, and never over what somebody else has set.

Every push makes a new, full bucket in the broker, of the other limiters of the same topic too. So rounds with
pushes are some seconds apart, and small changes are none.

What is there and is not what we set is somebody else's, and is left alone and looked at again a minute later,
unless it is said to override. A push that fails may have been carried out; the note says both, and the next
round looks what became of it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from streaming.collect.pulsar.limits import Kind, LimiterRate, Rates, Slot, body_of, is_real_change, rates_in
from streaming.collect.pulsar.metrics import CollectMetrics
from streaming.collect.pulsar.notes import Note, Notes
from streaming.collect.pulsar.rest import Rest, RestError, answer_of

logger = logging.getLogger("weir.collect")

PUSH_APART_MS: Final = 9_000
"""Between rounds with pushes, so that parts of one share change together: each refills a bucket."""
CHANGE: Final = 0.05
"""Least relative change; less is noise of the counters."""
PUSHES_MAX: Final = 200
"""Of one round; the others come in the next ones."""
LOOKS_MAX: Final = 10
"""Of a round, at limits of ours that may be gone."""
LOOK_AGAIN_MS: Final = 60_000
"""After this time it is looked again whether a limit is still somebody else's, or its target still gone."""


class Result(StrEnum):
    """What became of a limit that was to change."""

    SET = "set"
    REMOVED = "removed"
    FOREIGN = "foreign"
    GONE = "gone"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Change:
    """A limiter and what it is to hold; None: nothing."""

    slot: Slot
    rates: Rates | None

    def __str__(self) -> str:
        return f"{self.slot.name}: {'removed' if self.rates is None else self.rates}"


class Pusher:
    """What Pulsar holds of ours; with `override` we take over what somebody else has set."""

    def __init__(self, rest: Rest, notes: Notes, metrics: CollectMetrics, *, override: bool = False) -> None:
        self.pushed: dict[Slot, Rates] = {}
        """Our limits, as they are in force as far as is known."""
        self._rest, self._notes = rest, notes
        self._metrics, self._override = metrics, override
        self._noted: dict[Slot, Note] = {}
        # Of which it is not known whether they were carried out.
        self._unsure: set[Slot] = set()
        self._last_ms: dict[Slot, int] = {}
        self._began_ms: int | None = None
        self._crowded = False
        self._later_ms: dict[Slot, int] = {}
        # Left to somebody else, with what they hold.
        self._foreign: dict[Slot, Rates | None] = {}
        self._known = False

    async def recognize(self) -> None:
        """Find our limits again, once: those that are as a note says, or as it says that they were before.

        Afterwards look which are gone, some at a time: with a topic that is deleted its limits are.

        Raises:
            RestError: Pulsar does not tell; the next round asks again.
        """
        if self._known:
            # What was pushed just now some brokers may not know yet.
            some = islice((slot for slot in self.pushed if slot not in self._last_ms), LOOKS_MAX)
            for slot, there in (await self.look(some)).items():
                # As the last one, so that all have their turn.
                self.pushed[slot] = self.pushed.pop(slot)
                if there is None or (isinstance(there, RestError) and there.absent):
                    self._unsure.add(slot)
            return
        noted = await self._notes.read()
        found = await self.look(noted)
        for slot, note in noted.items():
            held = found[slot]
            if isinstance(held, RestError):
                if not held.absent:
                    self._noted[slot] = note
                    self._unsure.add(slot)
            elif held is not None and held in note:
                self.pushed[slot], self._noted[slot] = held, note
            elif held is not None:
                logger.warning("%s was changed by somebody else since: %s", slot.name, held)
        self._known = True
        self._count()

    def changes(self, wanted: Mapping[Slot, LimiterRate], held: Iterable[Slot], now_ms: int) -> list[Change]:
        """What is to be pushed now, at most PUSHES_MAX, and how much is put off is counted.

        Limits of topics come before those of their namespace when they are set, and after them when they are
        taken away: between the two a topic must not fall back on what is there for newcomers.

        Args:
            wanted: what limiters should hold.
            held: those that stay as they are.
            now_ms: time by a steady clock.
        """
        stay = set(held)
        due: list[Change] = []
        for slot, one in wanted.items():
            # Of what has failed nobody knows whether Pulsar holds that, or what it held before.
            before = None if slot in self._unsure else self.pushed.get(slot)
            rates = one.rates(slot.kind)
            least = 0.0 if one.exact else CHANGE
            if slot not in stay and (before is None or is_real_change(before, rates, least)):
                due.append(Change(slot, rates))
        ours = {*self.pushed, *self._unsure}
        due += [Change(slot, None) for slot in ours if slot not in wanted and slot not in stay]
        asked = wanted.keys() | stay
        self._foreign = {slot: rates for slot, rates in self._foreign.items() if slot in asked}
        self._last_ms = {slot: ms for slot, ms in self._last_ms.items() if now_ms - ms < PUSH_APART_MS}
        self._later_ms = {slot: ms for slot, ms in self._later_ms.items() if ms > now_ms}
        ready = [change for change in due if self._may(change.slot, now_ms)]
        ready.sort(key=_turn)
        if ready and not self._crowded:
            self._began_ms = now_ms
        self._crowded = len(ready) > PUSHES_MAX
        # Somebody else's and those of absent targets wait too, but for nothing of ours.
        self._metrics.waiting_pushes.set(
            sum(self._later_ms.get(change.slot, 0) <= now_ms for change in due) - len(ready[:PUSHES_MAX])
        )
        return ready[:PUSHES_MAX]

    def all_removals(self) -> list[Change]:
        """Taking away all of ours, limits of namespaces first."""
        ours = {*self.pushed, *self._unsure}
        return [Change(slot, None) for slot in sorted(ours, key=lambda slot: bool(slot.topic))]

    async def push(self, changes: Iterable[Change], now_ms: int) -> dict[Slot, Result]:
        """Carry changes out, namespace by namespace, and say of each what became of it."""
        by_namespace: dict[str, list[Change]] = {}
        for change in changes:
            by_namespace.setdefault(change.slot.namespace, []).append(change)
        done = await asyncio.gather(*(self._namespace(*each, now_ms) for each in by_namespace.items()))
        results = {slot: result for one in done for slot, result in one.items()}
        for slot, result in results.items():
            self._metrics.pushes.labels(slot.kind, result).inc()
        self._count()
        return results

    async def look(self, slots: Iterable[Slot]) -> dict[Slot, Rates | RestError | None]:
        """What limiters hold now, whoever set them."""
        asked = list(slots)
        answers = await asyncio.gather(*(answer_of(self._rest.get(slot.path)) for slot in asked))
        return {
            slot: answer if isinstance(answer, RestError) else rates_in(answer)
            for slot, answer in zip(asked, answers, strict=True)
        }

    def _may(self, slot: Slot, now_ms: int) -> bool:
        last = self._last_ms.get(slot)
        near = last is not None and now_ms - last < PUSH_APART_MS
        # What was too much for the last round goes on in this one.
        closed = self._began_ms is not None and now_ms - self._began_ms < PUSH_APART_MS
        return not near and (self._crowded or not closed) and self._later_ms.get(slot, 0) <= now_ms

    async def _namespace(self, namespace: str, changes: list[Change], now_ms: int) -> dict[Slot, Result]:
        noted = self._noted.keys() & {change.slot for change in changes}
        results = await self._carried_out(namespace, changes, now_ms)
        if Result.REMOVED in results.values() or not noted <= self._noted.keys():
            await self._forget_notes(namespace)
        return results

    async def _carried_out(self, namespace: str, changes: list[Change], now_ms: int) -> dict[Slot, Result]:
        found = await self.look(change.slot for change in changes)
        results: dict[Slot, Result] = {}
        ready: list[Change] = []
        for change in changes:
            result = self._objection(change.slot, found[change.slot], now_ms)
            if result is not None:
                results[change.slot] = result
            elif found[change.slot] != change.rates:
                ready.append(change)
            elif change.rates is None:
                self.pushed.pop(change.slot, None)
                self._noted.pop(change.slot, None)
            else:
                # It was pushed before, though that was answered by an error.
                self.pushed[change.slot] = change.rates
        if not ready:
            return results
        try:
            await self._note(namespace, ready, found)
        except RestError as failure:
            logger.warning("nothing is pushed for %s, since it could not be noted: %s", namespace, failure)
            return results | dict.fromkeys((change.slot for change in ready), _result_of(failure))
        for change in ready:
            results[change.slot] = await self._one(change, now_ms)
            if results[change.slot] is Result.FAILED:
                # The others come in a later round: each could take as long as this one.
                break
        return results

    def _objection(self, slot: Slot, found: Rates | RestError | None, now_ms: int) -> Result | None:
        """Why a limiter is not touched; None: it may be."""
        if isinstance(found, RestError):
            return self._failed(slot, found, now_ms)
        note = self._noted.get(slot)
        ours = found is None or found == self.pushed.get(slot) or (note is not None and found in note)
        if ours or self._override:
            self._foreign.pop(slot, None)
            self._unsure.discard(slot)
            return None
        if self._foreign.get(slot) != found:
            logger.warning("%s is left alone: somebody else set %s (--override)", slot.name, found)
        self._foreign[slot] = found
        self.pushed.pop(slot, None)
        self._unsure.discard(slot)
        self._later_ms[slot] = now_ms + LOOK_AGAIN_MS
        return Result.FOREIGN

    async def _note(
        self, namespace: str, ready: list[Change], found: Mapping[Slot, Rates | RestError | None]
    ) -> None:
        """Say what is to be, before it is."""
        noted = {slot: note for slot, note in self._noted.items() if slot.namespace == namespace}
        noted = {slot: note for slot, note in noted.items() if slot in self.pushed or slot in self._unsure}
        for change in ready:
            before = found[change.slot]
            held = before if isinstance(before, Rates) else None
            after = change.rates or held
            if after is not None:
                noted[change.slot] = Note(after, held)
        await self._notes.write(namespace, noted)
        gone = [slot for slot in self._noted if slot.namespace == namespace and slot not in noted]
        for slot in gone:
            del self._noted[slot]
        self._noted |= noted

    async def _forget_notes(self, namespace: str) -> None:
        """What somebody sets there from now on is theirs, the same numbers too."""
        left = {slot: note for slot, note in self._noted.items() if slot.namespace == namespace}
        try:
            await self._notes.write(namespace, left)
        except RestError as failure:
            logger.warning("limits of %s are gone, but still noted as ours: %s", namespace, failure)

    async def _one(self, change: Change, now_ms: int) -> Result:
        slot, rates = change.slot, change.rates
        self._last_ms[slot] = now_ms
        try:
            if rates is None:
                await self._rest.change("DELETE", slot.path)
            else:
                await self._rest.change("POST", slot.path, body_of(slot.kind, rates))
        except RestError as failure:
            result = self._failed(slot, failure, now_ms)
            if result is not Result.GONE:
                self._unsure.add(slot)
            return result
        if rates is None:
            self.pushed.pop(slot, None)
            self._noted.pop(slot, None)
        else:
            self.pushed[slot] = rates
        logger.info("%s", change)
        return Result.REMOVED if rates is None else Result.SET

    def _failed(self, slot: Slot, failure: RestError, now_ms: int) -> Result:
        result = _result_of(failure)
        if result is Result.GONE:
            # What was set there went with it. A namespace of Kafka's alone never was there.
            known = self.pushed.pop(slot, None) is not None
            self._unsure.discard(slot)
            self._noted.pop(slot, None)
            logger.log(logging.WARNING if known else logging.INFO, "%s: %s", slot.name, failure)
            self._later_ms[slot] = now_ms + LOOK_AGAIN_MS
        else:
            logger.warning("%s was not pushed: %s", slot.name, failure)
            self._later_ms[slot] = now_ms + PUSH_APART_MS
        return result

    def _count(self) -> None:
        for kind in Kind:
            self._metrics.limits.labels(kind).set(sum(slot.kind is kind for slot in self.pushed))
        self._metrics.foreign_limits.set(len(self._foreign))


def _turn(change: Change) -> tuple[bool, bool]:
    """What is set goes first, of it the limits of topics; of what is taken away those of namespaces."""
    removed = change.rates is None
    return removed, removed == bool(change.slot.topic)


def _result_of(failure: RestError) -> Result:
    if failure.absent:
        return Result.GONE
    return Result.REFUSED if failure.refused else Result.FAILED
