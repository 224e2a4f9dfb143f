"""Runs benchmarks, each in a process of its own with a time limit; a smoke run has two processes."""

import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from benchmarks.kit.result import table, write
from weir.jars.folders import ROOT
from weir.stack.process import Child

STOP_LIMIT_S: Final = 30.0
"""How long a benchmark that is told to stop may take to take down what it started."""
SMOKE_LIMIT_S: Final = 100.0
"""Of one in a smoke run."""
_IN_SPARK: Final = frozenset({"scale", "throughput"})
"""Those that start Spark themselves. In a smoke run they share it, in one process beside that of the rest."""
_POLL_S: Final = 0.05
_LIMIT_FACTOR, _LIMIT_EXTRA_S = 2.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run.

    Attributes:
        smoke: the short form, which only shows that the benchmarks work.
        results: folder for results, None: they are only printed.
        keep: folder that keeps what the benchmarks wrote while they ran (logs), None: a temporary one.
        package: where the benchmarks are.
    """

    smoke: bool
    results: Path | None
    keep: Path | None
    package: str = "benchmarks"


def known(package: str = "benchmarks") -> list[str]:
    """Names of all benchmarks of a package: its modules, and rooms whose own module is one."""
    folder = Path(str(importlib.import_module(package).__file__)).parent
    modules = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]
    rooms = [path.parent.name for path in folder.glob("*/__init__.py") if path.stat().st_size]
    return sorted([*modules, *rooms])


def run_all(names: list[str], options: Options, say: Callable[[str], None]) -> list[str]:
    """Run benchmarks, one after the other; in a smoke run, whose times mean nothing, two side by side.

    One that fails does not keep the others from running.

    Args:
        names: which, in this order.
        options: see Options.
        say: takes tables and messages for people.

    Returns:
        Names of those that failed.
    """
    failed: list[str] = []
    waiting = [_Run(lane, options) for lane in _lanes(names, options.smoke)]
    running: list[_Run] = []
    at_once = len(waiting) if options.smoke else 1
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(_POLL_S)
            for run in [run for run in running if run.over()]:
                running.remove(run)
                failed += run.told(say)
    finally:
        for run in running:
            run.end()
    return failed


def _lanes(names: list[str], smoke: bool) -> list[list[str]]:
    """Benchmarks by the process that they run in."""
    if not smoke:
        return [[name] for name in names]
    lanes = [name for name in names if name in _IN_SPARK], [name for name in names if name not in _IN_SPARK]
    return [lane for lane in lanes if lane]


class _Run:
    """Benchmarks in a process of their own, with a time limit."""

    def __init__(self, names: list[str], options: Options) -> None:
        self._names = names
        self._options = options
        self._limit_s = sum(_limit_s(name, options) for name in names)
        self._own = ExitStack()

    def start(self) -> None:
        """Start it."""
        options = self._options
        self._begun = time.monotonic()
        self._folder = self._own.enter_context(_folder(self._names[0], options))
        for name in self._names:
            self._out(name).unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.kit.alone", options.package, str(self._folder)]
        command += [*(["--smoke"] if options.smoke else []), *self._names]
        # Spark's Python workers import the benchmarks too, and inherit the path from here.
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"TMPDIR": str(self._folder), "PYTHONPATH": os.pathsep.join(paths)}
        if options.smoke:
            # Java's second compiler pays only in minutes; without it a smoke run takes half the processor.
            own["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1"
        self._child = Child(self._names[0], command, log=None, env=own)
        self._own.callback(self._child.stop, STOP_LIMIT_S)
        self._child.start()

    def over(self) -> bool:
        """Whether it has ended or taken too long."""
        return not self._child.alive() or time.monotonic() - self._begun > self._limit_s

    def told(self, say: Callable[[str], None]) -> list[str]:
        """Print or keep what was found and end it; names of those that failed, which is said too."""
        why = self._why()
        lines = {
            name: orjson.loads(out.read_bytes()) for name in self._names if (out := self._out(name)).exists()
        }
        self.end()
        for name in self._names:
            if name not in lines:
                say(f"benchmark {name} failed: {why}")
                continue
            if self._options.results is not None:
                write(self._options.results, lines[name])
            say(table(lines[name]))
        return [name for name in self._names if name not in lines]

    def end(self) -> None:
        """Stop it if it still runs, and remove its files."""
        self._own.close()

    def _out(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _why(self) -> str:
        """Why there is no result, if there is none."""
        status = self._child.poll()
        if status is None:
            return f"it took longer than {self._limit_s:.0f} s and was stopped"
        return f"it ended with status {status}; what it said stands above"


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


def _limit_s(name: str, options: Options) -> float:
    """Twice its stated duration, two minutes, and its `SETUP_LIMIT_S` if any."""
    if options.smoke:
        return SMOKE_LIMIT_S
    module = importlib.import_module(f"{options.package}.{name}")
    # What a first run has to build beforehand is no part of the stated duration.
    setup_s: float = getattr(module, "SETUP_LIMIT_S", 0.0)
    return float(module.DURATION_S * _LIMIT_FACTOR + _LIMIT_EXTRA_S + setup_s)
