"""`python -m benchmarks.kit.alone PACKAGE FOLDER [--smoke] NAME...`: benchmarks in one process.

What each has found stands in FOLDER as `NAME.json`, the object of its JSON line. One that fails says why on
stderr, and the others run all the same; the exit status is then 1.
"""

import importlib
import signal
import sys
import tempfile
import time
import traceback
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import orjson

from benchmarks.kit.fixtures import sharing
from benchmarks.kit.machine import loop_ms, machine, versions
from benchmarks.kit.progress import Progress
from benchmarks.kit.result import to_line


def main(package: str, folder: str, *words: str) -> int:
    """Run benchmarks one after the other; returns the exit status."""
    # As an exception a request to stop runs every `with` to its end, so that nothing is left running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    smoke, names = "--smoke" in words, [word for word in words if word != "--smoke"]
    failed = False
    with sharing(Path(tempfile.mkdtemp())) if smoke else nullcontext():
        for name in names:
            try:
                line = _run(package, name, smoke)
            except Exception:  # noqa: BLE001  # said, and the others run
                traceback.print_exc()
                failed = True
                continue
            out = Path(folder) / f"{name}.json"
            # Renamed into place: the runner must never read half of it.
            part = out.with_suffix(".part")
            part.write_bytes(orjson.dumps(line))
            part.replace(out)
    return int(failed)


def _run(package: str, name: str, smoke: bool) -> dict[str, object]:
    benchmark = importlib.import_module(f"{package}.{name}")
    where, date = machine(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    begun = time.monotonic()
    with Progress(benchmark.DURATION_S, name=name) as progress:
        result = benchmark.run(smoke=smoke, progress=progress)
        progress.step("done", 1.0)
    about = {
        "date": date,
        "seconds": round(time.monotonic() - begun, 1),
        "smoke": smoke,
        "machine": {**where, "loop_ms": [where["loop_ms"], loop_ms()]},
        "versions": versions(),
    }
    return to_line(result, about)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
