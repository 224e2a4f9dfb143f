"""`weir replay` of ten million requests: from Parquet and from JSON, to a file of decisions."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kit.machine import peak_bytes
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import Result, Row
from benchmarks.kit.stack import work_dir
from benchmarks.load.events import POLICIES, request_rows
from streaming.columns.json_rows import objects
from streaming.policy.files import policy_file

TITLE = "Replay: event files to decisions, in one process"
DURATION_S = 96
_FULL, _SMOKE = (10_000_000, 100_000), (20_000, 500)
"""Requests, and principals among whom they are drawn."""
_ROWS: Final = 262_144
TARGETS_S: Final = {"Parquet": 1_000_000, "JSON": 400_000}
TARGET_GIB: Final = 1.5
_LOOK_S: Final = 0.02


class _Took(NamedTuple):
    """What a replay took: wall and processor time, and the most memory that it had resident."""

    wall_s: float
    cpu_s: float
    gib: float


def run(smoke: bool, progress: Progress) -> Result:
    """Replay the same requests from either form."""
    count, principals = _SMOKE if smoke else _FULL
    folder = work_dir()
    policies = folder / "policies.yaml"
    policies.write_text(policy_file(POLICIES))
    rows: list[Row] = []
    for number, what in enumerate(TARGETS_S):
        progress.step(f"writing {what}", 0.5 * number)
        log = _parquet(folder, count, principals) if what == "Parquet" else _json(folder, count, principals)
        progress.step(f"replaying {what}", 0.5 * number + 0.15)
        took = _replayed(policies, log, folder / "decisions.jsonl", count)
        log.unlink()
        rows += _rows(what, took, count)
    notes = [
        f"{count:,} requests of {principals:,} principals, one item each, ten to a millisecond, in one file;"
        " the decisions are written as JSON lines. The whole command is measured, its start of about a second"
        " too.",
    ]
    return Result(name="replay", title=TITLE, rows=rows, notes=notes)


def _parquet(folder: Path, count: int, principals: int) -> Path:
    path = folder / "events.parquet"
    batches = request_rows(count, principals, rows=_ROWS)
    first = next(batches)
    head = pa.field("type", pa.string())
    with pq.ParquetWriter(path, pa.schema([head, *first.schema]), compression="zstd") as writer:
        for batch in (first, *batches):
            kinds = pa.repeat("request", len(batch))
            writer.write_batch(pa.RecordBatch.from_arrays([kinds, *batch.columns], schema=writer.schema))
    return path


def _json(folder: Path, count: int, principals: int) -> Path:
    path = folder / "events.jsonl"
    with path.open("wb") as file:
        for batch in request_rows(count, principals, rows=_ROWS):
            file.write(objects("request", batch, end="\n").buffers()[2])
    return path


def _replayed(policies: Path, log: Path, out: Path, count: int) -> _Took:
    words = ["replay", "--policies", str(policies), "--events", str(log), "--out", str(out)]
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "weir", *words])
    peak = 0
    # Not ru_maxrss, which begins with what the process that starts another one has itself.
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        peak = max(peak, peak_bytes(process.pid))
        time.sleep(_LOOK_S)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    with out.open("rb") as file:
        decided = sum(1 for _ in file)
    if process.returncode or decided != count:
        raise RuntimeError(f"status {process.returncode}, {decided} decisions for {count} events")
    out.unlink()
    return _Took(wall_s, used.ru_utime + used.ru_stime, peak / 2**30)


def _rows(what: str, took: _Took, count: int) -> list[Row]:
    rate, aim = count / took.wall_s, TARGETS_S[what]
    return [
        Row(f"{what}: events per second", rate, "events/s", target=f">= {aim:,} events/s", met=rate >= aim),
        Row(f"{what}: processor time", took.cpu_s / count * 1e6, "us/event"),
        Row(
            f"{what}: memory at most", took.gib, "GiB",
            target=f"< {TARGET_GIB} GiB", met=took.gib < TARGET_GIB,
        ),
    ]  # fmt: skip
