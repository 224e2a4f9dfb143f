"""Where a benchmark ran, on what, and what its processes used."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

from streaming.job.spark.java import find_java
from weir.jars.folders import ROOT, jars_dir

_LIMIT_S: Final = 10.0
_LOOPS: Final = 5
_PACKAGES: Final = {"spark": "pyspark", "pyarrow": "pyarrow", "numba": "numba"}
BOTH_COMPILERS: Final = ("-XX:TieredStopAtLevel=4",)
"""Of a JVM that is measured: as its own scripts start it. By the first compiler alone TLS costs 5 times."""
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, Any]:
    """Model of the processor, cores this process may use, memory, kernel, and how fast it is just now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(), "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(), "loop_ms": loop_ms(),
    }  # fmt: skip


def loop_ms() -> float:
    """Median time in ms of a fixed loop, 1,000,000 additions in Python: the speed of a core at this moment.

    The same machine may be twice as fast an hour later: figures of two runs compare only beside this.
    """
    times = []
    for _ in range(_LOOPS):
        begun, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number
        times.append((time.perf_counter() - begun) * 1000)
    return round(median(times), 1)


@cache
def versions() -> dict[str, str]:
    """Versions of what was measured and of this repository."""
    return {
        "python": platform.python_version(),
        "java": _java_version(),
        "kafka": _kafka_version(),
        **{name: version(package) for name, package in _PACKAGES.items()},
        "weir": _commit(),
    }


def process_tree(pid: int) -> list[int]:
    """A process and all below it, as far as they live now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(entry.name))
        if stat:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found


def cpu_s(pid: int) -> float:
    """Processor time, user and system, of a process and all below it, ended ones that were waited for too."""
    total = 0
    for each in process_tree(pid):
        stat = _stat(each)
        # utime, stime, cutime, cstime of proc(5), counted from the state on.
        total += sum(int(ticks) for ticks in stat[11:15])
    return total / _TICKS_S


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and all below it; pages that several share count for each."""
    total = 0
    for each in process_tree(pid):
        try:
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(pid: int) -> int:
    """The most memory that a process had resident, mapped files included; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def counted_twice(pids: Iterable[int]) -> int:
    """Bytes that the resident memory of these processes counts for each although they share them."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        of = {words[0]: int(words[1]) * 1024 for line in lines[1:] if (words := line.split())}
        total += of["Rss:"] - of["Pss:"]
    return total


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match.group(1).strip() if match else platform.machine()


def _java_version() -> str:
    # Java says its version on stderr: `openjdk version "17.0.2" 2022-01-18`.
    match = re.search(r'version "([^"]+)"', _output(str(find_java() / "bin" / "java"), "-version"))
    return match.group(1) if match else "unknown"


def _kafka_version() -> str:
    names = [path.stem for path in jars_dir("kafka").glob("kafka-clients-*.jar")]
    return names[0].removeprefix("kafka-clients-") if names else "unknown"


def _commit() -> str:
    commit = _output("git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD").strip()
    # Results of a run change files of the repository themselves.
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", "*.py")
    return (commit + ("+changes" if changed.strip() else "")) or "unknown"


def _output(*command: str) -> str:
    """What a command says on both of its outputs, nothing if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""
