"""Runs simulated histories, many side by side, has their log replayed, and makes one that fails smaller."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import orjson
from law_kit import replay_all
from simulated_case import JOB, Case, Fault, befalls_job, draw, shown
from simulated_job import Job
from simulated_life import METRICS
from simulated_rules import check
from simulated_town import Town
from soak_schedule import smaller

from streaming.columns.records import Records
from streaming.laws.law import StepContext
from weir.logs.dump_lines import Annotator, DumpSummary, History
from weir.logs.topic_reader import Record
from weir.simulate.failures.world import TOPICS

SIDE_BY_SIDE = 125
"""Histories before one job: a batch of one event costs as much as one of fifty; each policy costs all."""
KINDS = (TOPICS.requests, TOPICS.policies)


def company(seed: int) -> int:
    """The number of those that stand before one job with it."""
    return seed // SIDE_BY_SIDE


def run(cases: Sequence[Case], faults: Sequence[Fault] | None = None) -> list[Town]:
    """Let histories happen side by side.

    Args:
        cases: of one company.
        faults: of its job; None: those of its number.
    """
    number = company(cases[0].seed)
    befalls = befalls_job(number) if faults is None else list(faults)
    job = Job(number, {case.path: case.quota for case in cases}, befalls)
    job.doubts = METRICS.unacknowledged._value.get()
    towns = [Town(case, job) for case in cases]
    for town in towns:
        case, of_job = town.case, [{**shown(fault), "begins": fault.at} for fault in befalls]
        town.note("begin", links=case.links, quota=case.quota, batch_ms=job.batch_ms, job=of_job)
    # What a history leaves it leaves together, when it is over.
    gc.disable()
    try:
        job.run()
        for town in towns:
            town.end()
        _replay(job, towns)
    finally:
        gc.enable()
    return towns


def alone(seed: int, faults: Sequence[Fault] | None = None) -> Town:
    """One history by itself, with all that befalls it or some of that."""
    case = draw(seed)
    every = [*befalls_job(company(seed)), *case.faults]
    chosen = every if faults is None else faults
    own = [fault for fault in chosen if fault.what not in JOB]
    (town,) = run([replace(case, faults=own)], [fault for fault in chosen if fault.what in JOB])
    return town


def broken(town: Town) -> dict[str, list[str]]:
    """What the rules find against a history, of those that find something."""
    return {rule: found for rule, found in check(town.entries).items() if found}


def failing(seeds: Sequence[int]) -> Iterator[tuple[int, dict[str, list[str]]]]:
    """The seeds of histories that break a rule, and what each breaks."""
    for at in range(0, len(seeds), SIDE_BY_SIDE):
        for town in run([draw(seed) for seed in seeds[at : at + SIDE_BY_SIDE]]):
            found = broken(town)
            if found:
                yield town.case.seed, found


def shrunk(seed: int) -> list[Fault] | None:
    """As few of the faults of a history as break a rule; None: by itself it breaks none."""
    every = [*befalls_job(company(seed)), *draw(seed).faults]

    def fails(faults: list[Fault]) -> bool:
        return bool(broken(alone(seed, faults)))

    if not fails(every):
        return None
    return [] if fails([]) else smaller(every, fails, lambda: False)


def _replay(job: Job, towns: Sequence[Town]) -> None:
    """Decide the log once more, as `weir dump` and `weir replay --as-decided` do (docs/contract.md 4)."""
    log = {kind: [] for kind in KINDS}
    for offset, (topic, ts, value) in enumerate(job.log):
        if topic in log:
            log[topic].append(Record(topic, 0, offset, ts, value))
    history, counts = History(), DumpSummary()
    history.look_for_own(log[TOPICS.requests])
    said = [entry for town in towns for entry in town.entries if entry["what"] == "decision"]
    history.read_decisions(one["value"].encode() for one in sorted(said, key=lambda one: one["at"]))
    history.place_others()
    lines = []
    for topic, records in log.items():
        annotator = Annotator(history, counts, is_policy=topic == TOPICS.policies)
        lines += [line for record in records if (line := annotator.line(record)) is not None]
    texts = [line.text for line in sorted(lines)]
    initial = {town.case.path: town.case.quota for town in towns}
    places = range(1, len(texts) + 1)
    records = Records(
        topic=["dump.jsonl"] * len(texts), partition=[0] * len(texts), offset=list(places), ts=None,
        value=texts, file=[0] * len(texts),
    )  # fmt: skip
    outputs = replay_all(records, StepContext(initial=initial, replay=True, fail_fast=True))
    again = {name: value.decode() for name, value in zip(outputs.listed("id"), outputs.value, strict=True)}
    for town in towns:
        ids = {orjson.loads(value)["id"] for _, value in town.asked}
        town.note("replay", said={name: again[name] for name in sorted(ids) if name in again})
