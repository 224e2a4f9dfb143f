"""What a law costs: nanoseconds per event on one thread, its compiled part alone and the whole step."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.load.events import T0
from benchmarks.load.laws import LOADS
from streaming.columns.json_columns import columns_of
from streaming.columns.outputs import DecisionRows
from streaming.columns.packed import pack
from streaming.columns.records import NameColumn, Records, unpacked
from streaming.contract.errors import WeirError
from streaming.laws.law import StepContext
from streaming.laws.registry import LAWS
from streaming.laws.shard import step

TITLE = "Law cost: nanoseconds per event, one thread"
DURATION_S = 66
_EVENTS, _SMOKE_EVENTS = 50_000, 3_000
_REPEATS, _SMOKE_REPEATS = (3, 30), (1, 1)
"""Runs of each: at least and at most, as many as there is time for."""
_TIME_S: Final = 1.5


def run(smoke: bool, progress: Progress) -> Result:
    """Measure every law under each of its loads."""
    count, repeats = (_SMOKE_EVENTS, _SMOKE_REPEATS) if smoke else (_EVENTS, _REPEATS)
    rows: list[Row] = []
    cases = [(law, chosen) for law in LAWS.by_name for chosen in LOADS[law].policies]
    for number, (law, chosen) in enumerate(cases):
        what = f"{law} {chosen}".strip()
        progress.step(what, number / len(cases))
        alone, whole = _measure(law, chosen, count, repeats)
        if alone is not None:
            rows.append(_row(f"{what}: compiled part", alone, LOADS[law].targets_ns.get(chosen)))
        rows.append(_row(f"{what}: whole step", whole))
        if (most := LOADS[law].packed_ns) is not None:
            rows.append(_row(f"{what}: whole step, packed", _packed(law, chosen, count, repeats), most))
    notes = [
        f"{count:,} events a batch, the median of {repeats[0]} to {repeats[1]} runs, each from the state that"
        " a batch before it left; processor time of one thread.",
        " ".join(f"{law.capitalize()}: {LOADS[law].about}." for law in LAWS.by_name),
        "Compiled part: machine code only, called again with the same columns.",
        "Whole step: bytes of records to bytes of decisions, with parsing, and the shard's state read and"
        " written; packed: records as Arrow columns, decisions too.",
    ]
    return Result(name="laws", title=TITLE, rows=rows, notes=notes)


def _row(what: str, value: float, most: float | None = None) -> Row:
    """Nanoseconds an event; less than `most` are aimed at."""
    if most is None:
        return Row(what, value, "ns/event")
    return Row(what, value, "ns/event", target=f"< {most:.0f}", met=value < most)


def _packed(law: str, chosen: str, count: int, repeats: tuple[int, int]) -> float:
    """ns per event of the whole step with packed records, its decisions packed again."""
    load = LOADS[law]
    context = StepContext(initial=load.policies[chosen], processed_ts=T0, fail_fast=True)
    values = load.make(2 * count)
    body, _ = step(law, 0, None, _records(load.topic, values[:count]), context)
    objects = [orjson.loads(value) for value in values[count:]]
    type, times = objects[0]["type"], [one["ts"] for one in objects]
    packed = list(pack(type, columns_of(objects).drop_columns("type")))

    def whole() -> int:
        begun = time.process_time_ns()
        _, outputs = step(law, 0, body, _unpacked(load.topic, packed, max(times)), context)
        for decided in outputs.columns:
            assert isinstance(decided, DecisionRows)
            list(pack(decided.type, decided.rows))
        return time.process_time_ns() - begun

    return _median(whole, repeats) / count


def _unpacked(topic: str, packed: list[bytes], ts: int) -> Records:
    """Packed records that came at `ts`, taken apart."""
    count = len(packed)
    return unpacked(
        topic=NameColumn([topic], np.zeros(count, dtype=np.int64)), partition=np.zeros(count, dtype=np.int64),
        offset=np.arange(count), ts=np.full(count, ts),
        value=pa.chunked_array([pa.array(packed, pa.binary())]), broadcast=np.zeros(count, dtype=np.bool_),
        packed=np.ones(count, dtype=np.bool_),
    )  # fmt: skip


def _measure(law: str, chosen: str, count: int, repeats: tuple[int, int]) -> tuple[float | None, float]:
    """ns per event of the compiled part and of the whole step."""
    load = LOADS[law]
    context = StepContext(initial=load.policies[chosen], processed_ts=T0, fail_fast=True)
    values = load.make(2 * count)
    # The first half fills the table and compiles what is not compiled yet.
    body, written = step(law, 0, None, _records(load.topic, values[:count]), context)
    if written.letters:
        raise WeirError(f"{law} refused an event: {written.letters[0].value.decode()}")
    values = values[count:]
    calls: list[tuple[Any, ...]] = []
    with _listening(load.part, calls):
        step(law, 0, body, _records(load.topic, values), context)

    def whole() -> int:
        records = _records(load.topic, values)
        begun = time.process_time_ns()
        step(law, 0, body, records, context)
        return time.process_time_ns() - begun

    alone = None if load.part is None else _alone(load.part, calls, repeats) / count
    return alone, _median(whole, repeats) / count


def _median(measure: Callable[[], int], repeats: tuple[int, int]) -> float:
    times: list[int] = []
    deadline = time.monotonic() + _TIME_S
    least, most = repeats
    while len(times) < least or (len(times) < most and time.monotonic() < deadline):
        times.append(measure())
    return median(times)


def _records(topic: str, values: list[bytes]) -> Records:
    """Records that came when their events happened."""
    count = len(values)
    return Records(
        topic=[topic] * count, partition=[0] * count, offset=list(range(count)),
        ts=[orjson.loads(value)["ts"] for value in values], value=values, broadcast=[False] * count,
    )  # fmt: skip


@contextmanager
def _listening(part: Callable[..., Any] | None, calls: list[tuple[Any, ...]]) -> Iterator[None]:
    """Note what the laws call `part` with, wherever they have imported it."""

    def noted(*args: Any) -> Any:
        assert part is not None
        calls.append(_copied(args))
        return part(*args)

    routes = [
        (module, name)
        for key, module in list(sys.modules.items())
        if key.startswith("streaming.laws")
        for name, value in vars(module).items()
        if part is not None and value is part
    ]
    for module, name in routes:
        setattr(module, name, noted)
    try:
        yield
    finally:
        for module, name in routes:
            setattr(module, name, part)


def _alone(part: Callable[..., Any], calls: list[tuple[Any, ...]], repeats: tuple[int, int]) -> float:
    """ns of all calls together; each repetition begins with the arguments as they were."""
    if not calls:
        raise RuntimeError("the law did not call its compiled part")

    def once() -> int:
        fresh = [_copied(args) for args in calls]
        begun = time.process_time_ns()
        for args in fresh:
            part(*args)
        return time.process_time_ns() - begun

    return _median(once, repeats)


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_copy(arg) for arg in args)


def _copy(arg: Any) -> Any:
    """An argument that the law may write into without harm: arrays, alone or as fields of a named tuple."""
    if isinstance(arg, np.ndarray):
        # With the strides of a field of a table too, since machine code depends on them.
        size = sum((count - 1) * step for count, step in zip(arg.shape, arg.strides, strict=True))
        room = np.empty(max(0, size) + arg.itemsize, dtype=np.uint8)
        copy = np.ndarray(arg.shape, arg.dtype, room, strides=arg.strides)
        copy[...] = arg
        return copy
    if isinstance(arg, tuple):
        return type(arg)(*map(_copy, arg)) if hasattr(arg, "_fields") else _copied(arg)
    return arg
