"""Replay: event files through the laws, without Spark or Kafka (docs/contract.md 4).

A log is read, decided and written some at a time, each in a thread of its own: memory does not grow with it.
The policies' timeline, the order of the output and the summary serve the Spark engine too
(streaming/job/replay.py), so that both write the same bytes.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns.outputs import Decided, Outputs
from streaming.columns.records import Records, chosen
from streaming.contract.errors import BadEvent, WeirError
from streaming.contract.events import PolicyChange, parse
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.log.deciding import Replay
from streaming.log.reading import Line, is_parquet
from streaming.log.sorted_decisions import KEY, SortedDecisions, keyed
from streaming.log.stretches import Disorder, Order, Stretch, as_it_comes, by_time
from streaming.log.threads import ahead, behind
from streaming.log.writing import is_regular, whole, write_lines
from streaming.policy.files import check_entry, load_policies
from streaming.policy.timeline import PolicyTimeline

Tell = Callable[[int, float], None]
"""Told how many events are decided, and which part of the log that is."""


class Decider:
    """Decides a log, a stretch after the other.

    Args:
        context: as of `Replay`.

    Attributes:
        replay: what reads it.
    """

    def __init__(self, context: StepContext) -> None:
        self.replay = Replay(context)

    def decide(self, stretch: Stretch, *, last: bool) -> list[Decided]:
        """Decide what comes next; `last`: nothing follows."""
        return [said for _, _, said in self.replay.decide(stretch.read, last=last)]


class Lines:
    """The lines of a file, read anew by each who asks, without their newlines.

    Attributes:
        path: where it is.

    Args:
        count: how many there are.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path, self._count = path, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            yield from (line[:-1] for line in file)


@dataclass(slots=True)
class ReplayResult:
    """What a replay has decided, in its final order: in memory, or in files that are gone afterwards.

    Attributes:
        decisions: one JSON object each, by (ts, type, id).
        dead_letters: one JSON object each, in the order of the input.
    """

    decisions: list[bytes] | Lines = field(default_factory=list)
    dead_letters: list[bytes] | Lines = field(default_factory=list)

    def write(self, out: str, dead_letters: str | None) -> None:
        """Write the files of `weir replay`, each whole or not at all; nothing can be read here any more.

        Raises:
            WeirError: a file cannot be written.
        """
        for lines, file in ((self.decisions, out), (self.dead_letters, dead_letters)):
            if file is None:
                continue
            if isinstance(lines, list) or file.endswith(".gz") or is_parquet(file) or not is_regular(file):
                write_lines(file, lines)
                continue
            try:
                with whole(file) as draft:
                    shutil.move(lines.path, draft)
            except OSError as error:
                raise WeirError(f"{file}: cannot be written: {error}") from error


class Drafts:
    """Files in which decisions and dead letters gather.

    Attributes:
        folder: see there.

    Args:
        folder: for them, empty.
        held: closes them.
    """

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder, self._buried = folder, 0
        self._letters = held.enter_context((folder / "dead-letters").open("wb"))
        decisions = held.enter_context((folder / "decisions").open("w+b"))
        self._decisions = SortedDecisions(decisions, partial(_spare, folder, held))

    def bury(self, records: Records, outputs: Outputs) -> None:
        """Take the dead letters of records, all of them in the order of the input."""
        lines = in_order(records, Outputs(letters=outputs.letters)).dead_letters
        self._letters.writelines(line + b"\n" for line in lines)
        self._buried += len(lines)

    def add(self, decided: Sequence[Decided], records: Records, upto: int = 0) -> None:
        """Take what was decided of records; mostly all that follows is of `upto` ms or later."""
        self._decisions.add([keyed(said, records) for said in decided if len(said)], upto)

    def finish(self) -> ReplayResult:
        """All of it."""
        decisions, letters = self.folder / "decisions", self.folder / "dead-letters"
        late = self._decisions.finish()
        if late is not None:
            again = self.folder / "again"
            with again.open("wb") as file:
                file.writelines(late)
            again.replace(decisions)
        self._letters.flush()
        return ReplayResult(Lines(decisions, self._decisions.count), Lines(letters, self._buried))


def _spare(folder: Path, held: ExitStack) -> IO[bytes]:
    return held.enter_context(tempfile.TemporaryFile(dir=folder))


def room_near(near: str | None) -> str | None:
    """The folder of a file, unless that is a device or pipe; None: where temporary files are."""
    return os.path.dirname(os.path.realpath(near)) if near is not None and is_regular(near) else None


@contextmanager
def work_folder(near: str | None) -> Iterator[Path]:
    """A folder that is gone afterwards, where `room_near` says.

    Raises:
        OSError: there is no room; it names the place.
    """
    room = room_near(near) or tempfile.gettempdir()
    try:
        with tempfile.TemporaryDirectory(prefix=".weir-replay-", dir=room) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno and not error.filename:
            # A write that fails does not say where.
            error.filename = room
        raise


@contextmanager
def drafts(near: str | None) -> Iterator[Drafts]:
    """Files in a `work_folder`; its errors."""
    with work_folder(near) as folder, ExitStack() as held:
        yield Drafts(folder, held)


def read_timeline(initial: Mapping[str, Any], lines: Iterable[Line]) -> PolicyTimeline:
    """The policies over time that a log means: `initial` as version 1, one more with each policy event.

    Events that cannot be used are passed over here; the step that meets them again buries them.
    """
    timeline = PolicyTimeline(initial)
    for line in lines:
        # Whatever is escaped may be that word.
        if b"policy" not in line.value and b"\\u" not in line.value:
            continue
        try:
            event = parse(line.value, default_id=line.name, default_ts=None)
            if isinstance(event, PolicyChange):
                check_entry(event.path, event.value)
                timeline.apply(event.path, event.value, event.ts, event.version)
        except BadEvent:
            continue
    return timeline


def replay_local(policies: str, files: Sequence[str], *, as_decided: bool = False) -> ReplayResult:
    """Replay files in this process, all in memory at the end; arguments and errors of `replaying`."""
    with replaying(policies, files, as_decided=as_decided) as replayed:
        return ReplayResult(list(replayed.decisions), list(replayed.dead_letters))


@contextmanager
def replaying(
    policies: str, files: Sequence[str], *, as_decided: bool = False, near: str | None = None,
    tell: Tell = lambda events, part: None, decider: Callable[[StepContext], Decider] = Decider,
) -> Iterator[ReplayResult]:  # fmt: skip
    """Replay files in this process; one shard holds all subjects, which changes no decision.

    Args:
        policies: file with the policies in force at the start.
        files: event files, in order.
        as_decided: what proxies have decided stands, as in the live job; False: it is decided anew.
        near: see `room_near`.
        tell: told now and then how many events are decided, and which part of the log that is.
        decider: makes what decides; anew, if the log turns out to be in no order.

    Raises:
        ConfigError: the policies are wrong.
        WeirError: a file cannot be read.
        OSError: there is no room for what is written.
    """
    context = StepContext(
        initial=load_policies(policies), replay=True, fail_fast=True, as_decided=as_decided
    )
    with ExitStack() as held:
        try:
            # A pipe can be read only once, so its log is sorted in any case.
            order = as_it_comes if all(map(os.path.isfile, files)) else by_time
            replayed = _decided(decider(context), files, held.enter_context(drafts(near)), order, tell)
        except Disorder:
            held.close()
            replayed = _decided(decider(context), files, held.enter_context(drafts(near)), by_time, tell)
        yield replayed


def _decided(
    decider: Decider, files: Sequence[str], to: Drafts, order: Order, tell: Tell
) -> ReplayResult:
    """Decide a log, a stretch after the other."""
    events = 0
    with behind() as put:
        for stretch, last in ahead(order(files, decider.replay, to.bury, to.folder)):
            put(partial(to.add, decider.decide(stretch, last=last), stretch.records, stretch.upto))
            events += len(stretch.records)
            tell(events, stretch.part)
    return to.finish()


def in_order(records: Records, written: Outputs) -> ReplayResult:
    """What was written of a log, as the files of a replay hold it."""
    return ordered(pa.table(written.replayed(records)))


def ordered(written: pa.Table) -> ReplayResult:
    """Sort what was written as docs/contract.md 4 says.

    Args:
        written: decisions and dead letters in any order, columns of `Outputs.replayed`.
    """
    dead = written["dead"]
    # Stable, and text by its bytes in UTF-8, which is the order of code points.
    decisions, dead_letters = (
        part["value"].take(pc.sort_indices(part, sort_keys=[(name, "ascending") for name in names]))
        for part, names in ((chosen(written, pc.invert(dead)), KEY), (chosen(written, dead), KEY[3:]))
    )
    return ReplayResult(
        decisions=decisions.to_numpy().tolist(), dead_letters=dead_letters.to_numpy().tolist()
    )


def summarise(decisions: Iterable[bytes]) -> dict[str, Any]:
    """Totals per subject (docs/contract.md 4, `--summary`): events, and what its law adds up."""
    subjects: dict[str, dict[str, Any]] = {}
    for line in decisions:
        decision = orjson.loads(line)
        totals = subjects.setdefault(LAWS.subject_of(decision), {"events": 0})
        totals["events"] += 1
        LAWS.by_decision[decision["type"]].total(totals, decision)
    return {"subjects": {subject: subjects[subject] for subject in sorted(subjects)}}
