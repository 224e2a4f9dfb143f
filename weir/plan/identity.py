"""The proof that a log is what was decided by: what was recorded comes out again (docs/contract.md 4)."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from itertools import islice
from typing import IO, Any, Final

import numpy as np
import orjson

from streaming.columns.byte_strings import Integers
from streaming.contract.decisions import CANDIDATE
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import load_object
from streaming.contract.fields import INT64_MAX
from streaming.laws.registry import LAWS
from streaming.log.reading import read_lines
from streaming.replay import room_near

ANSWERS: Final = frozenset({"admission", "dispatch"})
"""Decisions of which the live job writes every one; of the others it writes those that say something new."""
_HASH_BYTES: Final = 8
_PARTS: Final = 64
_AT_ONCE: Final = 1 << 16
_WORDS_MAX: Final = 300


class _Said:
    """Decisions as numbers: what each answers, what it says, when, and where it stands.

    On the disk, those that answer the same together, so that memory does not grow with them.

    Args:
        held: closes the files.
        near: see `room_near`.
    """

    def __init__(self, held: ExitStack, near: str | None) -> None:
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._files = [_spare(held, near) for _ in range(_PARTS)]

    def add(self, place: int, decision: dict[str, Any]) -> None:
        """Note one."""
        kind, ts = str(decision["type"]), decision.get("ts")
        own = f"{kind} {decision.get('id')}".encode()
        said = orjson.dumps(decision, option=orjson.OPT_SORT_KEYS)
        time = min(ts, INT64_MAX) if type(ts) is int else 0
        self._rows.append((_hash(own), _hash(said), time, place, kind in ANSWERS))
        if len(self._rows) == _AT_ONCE:
            self._write()

    def parts(self) -> Iterator[Integers]:
        """A row each; the columns are as noted."""
        self._write()
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(file.read(), dtype=np.int64).reshape(-1, 5)

    def _write(self) -> None:
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 5)
        self._rows = []
        for number, file in enumerate(self._files):
            file.write(table[table[:, 0] % _PARTS == number].tobytes())


def _spare(held: ExitStack, near: str | None) -> IO[bytes]:
    return held.enter_context(tempfile.TemporaryFile(dir=room_near(near)))


def prove(recorded: Sequence[str], replayed: Iterable[bytes], near: str | None = None) -> int:
    """Return how many recorded decisions came out again, which is all of them.

    Repeats, what was only tried, and the steps of actions stand aside. Of shares, limits and backlogs the
    live job does not write each one that a replay has.

    Args:
        recorded: files of decisions.
        replayed: what a replay of their events has decided; it is read several times.
        near: see `room_near`.

    Raises:
        WeirError: where they differ first; or a file cannot be read.
    """
    with ExitStack() as held:
        before, after = _Said(held, near), _Said(held, near)
        for place, _, decision in _recorded(recorded):
            before.add(place, decision)
        for place, value in enumerate(replayed):
            after.add(place, orjson.loads(value))
        wrong, count, proven = list[tuple[int, int, int]](), 0, 0
        for left, right in zip(before.parts(), after.parts(), strict=True):
            missing = left[~_among(left, right)]
            added = right[~np.isin(right[:, 0], left[:, 0]) & (right[:, 4] == 1)]
            for only_replayed, rows in enumerate((missing, added)):
                wrong += [(ts, only_replayed, place) for _, _, ts, place, _ in rows.tolist()]
                count += len(rows)
            wrong = sorted(wrong)[:1]
            proven += len(np.unique(left[:, 0]))
    if wrong:
        raise WeirError(_told(recorded, replayed, wrong[0], count))
    return proven


def _among(some: Integers, others: Integers) -> Any:
    """Whether each decision is said by the others too, word for word."""
    both = np.concatenate([some[:, :2], others[:, :2]])
    _, number = np.unique(both, axis=0, return_inverse=True)
    number = number.ravel()
    return np.isin(number[: len(some)], number[len(some) :])


def _recorded(files: Sequence[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Place, line and decision of all that counts."""
    for place, line in enumerate(read_lines(files)):
        where = f"{files[line.file]}:{line.number}"
        try:
            decision = load_object(line.value)
        except BadEvent as error:
            raise WeirError(f"{where}: {error.reason}") from error
        known = isinstance(decision.get("type"), str) and decision["type"] in LAWS.by_decision
        if known and CANDIDATE not in decision and decision.get("repeat") is not True:
            yield place, where, decision


def _told(files: Sequence[str], replayed: Iterable[bytes], first: tuple[int, int, int], count: int) -> str:
    """Where they differ first, and how often."""
    ts, only_replayed, place = first
    differ = f"the log is not trusted: {count} decisions differ, the first one"
    if only_replayed:
        decision = orjson.loads(next(islice(replayed, place, None)))
        how = "the log gives it, and it was not recorded"
        where = ", ".join(map(os.path.basename, files))
    else:
        if not all(map(os.path.isfile, files)):
            return f"{differ} at {ts}; a pipe is read once: give its decisions as a file to see which"
        where, decision = next((where, said) for at, where, said in _recorded(files) if at == place)
        how = _difference(decision, replayed)
    name = f"{decision['type']} {decision.get('id')} at {decision.get('ts')}"
    return f"{differ} in {where}: {name}: {how}"


def _difference(recorded: dict[str, Any], replayed: Iterable[bytes]) -> str:
    name = orjson.dumps(recorded.get("id"))
    for value in replayed:
        if name in value:
            found = orjson.loads(value)
            if (found["type"], found["id"]) == (recorded["type"], recorded.get("id")):
                keys = [*recorded, *(key for key in found if key not in recorded)]
                other = next(key for key in keys if _word(recorded, key) != _word(found, key))
                said = (_word(one, other)[:_WORDS_MAX] for one in (recorded, found))
                return "recorded {}: {}, the log gives {}".format(other, *said)
    return "recorded, and the log does not give it"


def _word(decision: dict[str, Any], key: str) -> str:
    """What it says there, as it is compared: 5 is not 5.0, and null is something."""
    said = orjson.dumps(decision[key], option=orjson.OPT_SORT_KEYS) if key in decision else b"nothing"
    return said.decode()


def _hash(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=_HASH_BYTES).digest(), signed=True)
