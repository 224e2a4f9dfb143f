"""Runs benchmarks one after the other, each in a process of its own with a time limit."""

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.kit.machine import machine, versions
from benchmarks.kit.result import from_json, table, to_line, write
from weir.jars import ROOT
from weir.process import die_with_parent

STOP_LIMIT_S: Final = 30.0
"""How long a benchmark that is told to stop may take to take down what it started."""
SMOKE_LIMIT_S: Final = 300.0
_LIMIT_FACTOR, _LIMIT_EXTRA_S = 2.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run.

    Attributes:
        smoke: the short form, which only shows that the benchmarks work.
        results: folder for results, None: they are only printed.
        keep: folder that keeps what the benchmarks wrote while they ran (logs), None: a temporary one.
        package: where the benchmarks are.
        limit_s: for each, None: twice its stated duration, two minutes, and its `SETUP_LIMIT_S` if any.
    """

    smoke: bool
    results: Path | None
    keep: Path | None
    package: str = "benchmarks"
    limit_s: float | None = None


def known(package: str = "benchmarks") -> list[str]:
    """Names of all benchmarks of a package."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def run_all(names: list[str], options: Options, say: Callable[[str], None]) -> list[str]:
    """Run benchmarks; one that fails does not keep the others from running.

    Args:
        names: which, in this order.
        options: see Options.
        say: takes tables and messages for people.

    Returns:
        Names of those that failed.
    """
    failed = []
    for name in names:
        why = _run_one(name, options, say)
        if why:
            say(f"benchmark {name} failed: {why}")
            failed.append(name)
    return failed


def _run_one(name: str, options: Options, say: Callable[[str], None]) -> str:
    """Run one and print or keep what it found; returns why it failed, empty if it did not."""
    begun, date = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with _folder(name, options) as folder:
        out = folder / "result.json"
        out.unlink(missing_ok=True)
        why = _in_process(name, folder, out, options)
        if why:
            return why
        result = from_json(out.read_bytes())
    about = {
        "date": date,
        "seconds": round(time.monotonic() - begun, 1),
        "smoke": options.smoke,
        "machine": machine(),
        "versions": versions(),
    }
    line = to_line(result, about)
    if options.results is not None:
        write(options.results, line)
    say(table(line))
    return ""


@contextmanager
def _folder(name: str, options: Options) -> Iterator[Path]:
    """Where a benchmark's temporary files go; ours to remove, since a killed process does not."""
    if options.keep is not None:
        folder = options.keep / name
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    temporary = Path(tempfile.mkdtemp(prefix=f"weir-bench-{name}-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _in_process(name: str, folder: Path, out: Path, options: Options) -> str:
    command = [sys.executable, "-m", "benchmarks.kit.alone", f"{options.package}.{name}", str(out)]
    command += ["--smoke"] if options.smoke else []
    limit_s = options.limit_s or _limit_s(name, options)
    # A group of its own, so that nothing of a benchmark that hangs outlives it; nor does it outlive us.
    process = subprocess.Popen(
        command, env=_environment(folder), start_new_session=True, preexec_fn=die_with_parent
    )
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"it took longer than {limit_s:.0f} s and was stopped"
    finally:
        _end(process)
    if status:
        return f"it ended with status {status}; what it said stands above"
    return "" if out.exists() else "it ended without a result"


def _environment(folder: Path) -> dict[str, str]:
    # Spark's Python workers import the benchmarks too, and inherit the path from here.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(paths)}


def _limit_s(name: str, options: Options) -> float:
    if options.smoke:
        return SMOKE_LIMIT_S
    module = importlib.import_module(f"{options.package}.{name}")
    # What a first run has to build beforehand is no part of the stated duration.
    setup_s: float = getattr(module, "SETUP_LIMIT_S", 0.0)
    return float(module.DURATION_S * _LIMIT_FACTOR + _LIMIT_EXTRA_S + setup_s)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop it if it still runs, and whatever is left in its group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
